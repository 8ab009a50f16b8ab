#include "checkpoint/read_group.h"

#include <utility>

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{20};  // a CancelToken cannot wake anybody

}  // namespace

ReadGroup::~ReadGroup() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ == 0; });
}

void ReadGroup::Start(IoScheduler& io, const ReadRequest& request, IoPriority priority, IoTag tag, int32_t drive) {
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  // Two captured words fit into std::function without an allocation.
  io.Read(request, drive, priority, tag,
          [this, bytes = request.bytes](Status status) { Finish(bytes, std::move(status)); });
}

void ReadGroup::Finish(uint64_t bytes, Status status) {
  const std::lock_guard lock(mutex_);
  if (status)
    bytes_done_ += bytes;
  else if (first_error_)
    first_error_ = std::move(status);
  if (--in_flight_ == 0) changed_.notify_all();
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
  return in_flight_ == 0;
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
