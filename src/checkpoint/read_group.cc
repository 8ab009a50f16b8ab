#include "checkpoint/read_group.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{20};  // a CancelToken cannot wake anybody
// In place of a read's bytes: it hung, and the next call says that its destination is free.
constexpr uint64_t kHung = ~uint64_t{0};

}  // namespace

struct ReadGroup::State {
  void Finish(uint64_t* bytes, Status status);
  bool idle() const { return in_flight == 0 && hung == 0; }

  std::mutex mutex;
  std::condition_variable changed;
  int in_flight = 0;  // without a result
  int hung = 0;       // with the result kDeadline, and a destination that is not free
  uint64_t bytes_done = 0;
  Status first_error;
  std::shared_ptr<const AlignedBuffer> memory;
  std::shared_ptr<State> itself;  // once the group is gone, until the last read is over
};

void ReadGroup::State::Finish(uint64_t* bytes, Status status) {
  std::shared_ptr<State> last;  // dies after the lock does
  const std::lock_guard lock(mutex);
  if (*bytes == kHung) {
    --hung;
  } else {
    --in_flight;
    if (status) {
      bytes_done += *bytes;
    } else if (status.error().code() == ErrorCode::kDeadline) {
      *bytes = kHung;
      ++hung;
    }
    if (!status && first_error) first_error = std::move(status);
  }
  if (in_flight == 0) changed.notify_all();
  if (idle()) last = std::move(itself);
}

ReadGroup::ReadGroup(std::shared_ptr<const AlignedBuffer> memory) : state_(std::make_shared<State>()) {
  state_->memory = std::move(memory);
}

ReadGroup::~ReadGroup() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->idle()) state_->itself = state_;
}

void ReadGroup::SetMemory(std::shared_ptr<const AlignedBuffer> memory) {
  const std::lock_guard lock(state_->mutex);
  DFIN_CHECK(state_->idle(), "reads are still written into the memory before");
  state_->memory = std::move(memory);
}

void ReadGroup::Start(IoScheduler& io, const ReadRequest& request, IoPriority priority, IoTag tag, int32_t drive) {
  State* state = state_.get();
  {
    const std::lock_guard lock(state->mutex);
    DFIN_CHECK(state->memory != nullptr, "a read group has the memory that is read into");
    ++state->in_flight;
  }
  // Two captured words fit into std::function without an allocation.
  io.Read(request, drive, priority, tag,
          [state, bytes = request.bytes](Status status) mutable { state->Finish(&bytes, std::move(status)); });
}

bool ReadGroup::WaitFor(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&] { return state_->in_flight == 0; });
}

bool ReadGroup::WaitUnless(CancelToken cancel) {
  while (!WaitFor(kCancelPoll))
    if (cancel.cancelled()) return false;
  return true;
}

bool ReadGroup::idle() {
  const std::lock_guard lock(state_->mutex);
  return state_->idle();
}

bool ReadGroup::hangs() {
  const std::lock_guard lock(state_->mutex);
  return state_->in_flight == 0 && state_->hung > 0;
}

bool ReadGroup::failed() {
  const std::lock_guard lock(state_->mutex);
  return !state_->first_error;
}

Status ReadGroup::Wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->in_flight == 0; });
  return std::exchange(state_->first_error, Status());
}

uint64_t ReadGroup::bytes_done() {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes_done;
}

}  // namespace deltafin
