#include "checkpoint/read_group.h"

#include <utility>

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{20};  // a CancelToken cannot wake anybody
// In place of a read's bytes: it hung, and the next call says that its destination is free.
constexpr uint64_t kHung = ~uint64_t{0};

}  // namespace

ReadGroup::~ReadGroup() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ == 0 && hung_ == 0; });
}

void ReadGroup::Start(IoScheduler& io, const ReadRequest& request, IoPriority priority, IoTag tag, int32_t drive) {
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  // Two captured words fit into std::function without an allocation.
  io.Read(request, drive, priority, tag,
          [this, bytes = request.bytes](Status status) mutable { Finish(&bytes, std::move(status)); });
}

void ReadGroup::Finish(uint64_t* bytes, Status status) {
  const std::lock_guard lock(mutex_);
  if (*bytes == kHung) {
    --hung_;
  } else {
    --in_flight_;
    if (status) {
      bytes_done_ += *bytes;
    } else if (status.error().code() == ErrorCode::kDeadline) {
      *bytes = kHung;
      ++hung_;
    }
    if (!status && first_error_) first_error_ = std::move(status);
  }
  if (in_flight_ == 0) changed_.notify_all();
}

bool ReadGroup::WaitFor(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return in_flight_ == 0; });
}

bool ReadGroup::WaitUnless(CancelToken cancel) {
  while (!WaitFor(kCancelPoll))
    if (cancel.cancelled()) return false;
  return true;
}

bool ReadGroup::idle() {
  const std::lock_guard lock(mutex_);
  return in_flight_ == 0 && hung_ == 0;
}

bool ReadGroup::hangs() {
  const std::lock_guard lock(mutex_);
  return in_flight_ == 0 && hung_ > 0;
}

Status ReadGroup::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ == 0; });
  return std::exchange(first_error_, Status());
}

uint64_t ReadGroup::bytes_done() {
  const std::lock_guard lock(mutex_);
  return bytes_done_;
}

}  // namespace deltafin
