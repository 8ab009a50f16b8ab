#include "io/io_scheduler.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "io/read_dispatcher.h"
#include "io/read_nodes.h"

namespace deltafin {
namespace {

constexpr size_t kReapBatch = 64;  // completions taken from the engine at once

}  // namespace

// One thread runs Loop(): under the lock the dispatcher decides; without the lock the thread submits, waits and calls
// back. No call-back and no engine call happens under the lock, Wake() included.
class IoScheduler::Impl {
 public:
  Impl(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options, const Clock* clock)
      : engine_(std::move(engine)),
        options_(std::move(options)),
        clock_(clock != nullptr ? clock : &steady_clock_),
        dispatcher_(options_, engine_->depth()) {
    const auto depth = static_cast<size_t>(engine_->depth());
    to_submit_.reserve(depth);
    completions_.resize(std::min(depth, kReapBatch));
    thread_ = std::thread([this] { Loop(); });
  }

  // Callbacks may still read while this runs, so it comes before any member is gone.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    engine_->Wake();
    thread_.join();
  }

  void Read(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, Done done) {
    DFIN_CHECK(!parts.empty() && parts.size() <= kMaxParts, "a read has 1 to kMaxParts parts");
    const auto drives = static_cast<int32_t>(options_.drives.size());
    for (const ReadPart& part : parts) {
      DFIN_CHECK(part.request.file != nullptr && part.request.destination != nullptr && part.request.bytes > 0,
                 "a read names its bytes");
      DFIN_CHECK(part.drive >= 0 && part.drive < drives && part.copy.drive < drives, "a read is of a known drive");
    }
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      dispatcher_.Add(parts, priority, tag, std::move(done), clock_->NowNs());
      wake = std::exchange(waiting_, false);
    }
    if (wake) engine_->Wake();
  }

  void Cancel(IoTag tag) {
    if (tag == 0) return;
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      dispatcher_.Cancel(tag);
      wake = !dispatcher_.ended().empty() && std::exchange(waiting_, false);
    }
    if (wake) engine_->Wake();
  }

  void Raise(IoTag tag, IoPriority priority) {
    if (tag == 0) return;
    const std::lock_guard lock(mutex_);
    dispatcher_.Raise(tag, priority);
  }

  IoTag NewTag() { return next_tag_.fetch_add(1, std::memory_order_relaxed); }

  IoCounters counters() const {
    const std::lock_guard lock(mutex_);
    return dispatcher_.counters(clock_->NowNs());
  }

  std::vector<DriveCounters> drive_counters() const {
    const std::lock_guard lock(mutex_);
    return dispatcher_.drive_counters(clock_->NowNs());
  }

  const std::vector<DriveInfo>& drives() const { return options_.drives; }
  std::string engine_name() const { return engine_->name(); }

 private:
  void Loop() {
    while (Decide()) {
      for (const ReadDispatcher::Submission& read : to_submit_) engine_->Submit(read.id, read.request);
      to_submit_.clear();
      if (calling_.empty() && degraded_.empty()) {
        Reap();
      } else {
        TellDegraded();
        CallBack();
      }
    }
  }

  // What to submit, whom to call back and how long to wait; false at the end.
  bool Decide() {
    const std::lock_guard lock(mutex_);
    waiting_ = false;
    if (stop_) dispatcher_.CancelAll();
    const int64_t now_ns = clock_->NowNs();
    // While answers may lie at the engine, nobody can be blamed for being late.
    if (drained_) dispatcher_.CheckHangs(now_ns);
    dispatcher_.HandOut(now_ns, &to_submit_);
    calling_ = std::exchange(dispatcher_.ended(), {});
    degraded_.swap(dispatcher_.degraded());
    if (stop_ && calling_.empty() && dispatcher_.idle()) return false;
    const int64_t look_ns = dispatcher_.NextLookNs(now_ns);
    timeout_ns_ = look_ns < 0 ? -1 : std::max<int64_t>(0, look_ns - now_ns);
    // From here on a Read must wake the engine; set under the lock that Read takes, so no read is overlooked.
    waiting_ = calling_.empty() && degraded_.empty();
    return true;
  }

  void Reap() {
    const size_t count = engine_->Wait(completions_, timeout_ns_);
    drained_ = count < completions_.size();
    if (count == 0) return;
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_->NowNs();
    for (size_t i = 0; i < count; ++i) dispatcher_.Answer(completions_[i], now_ns);
  }

  void TellDegraded() {
    for (const auto& [drive, reason] : degraded_)
      if (options_.on_degraded) options_.on_degraded(drive, reason);
    degraded_.clear();
  }

  void CallBack() {
    NodeList<QueuedRead> called;
    while (!calling_.empty()) {
      QueuedRead* read = calling_.PopFront();
      const bool last = !read->given_up || read->told;
      read->done(std::move(read->status));
      if (last)
        read->done = nullptr;
      else
        read->status = Fail(ErrorCode::kDeadline, "given up");  // it stays a failed read
      called.Append(read);
    }
    const std::lock_guard lock(mutex_);
    while (!called.empty()) dispatcher_.Told(called.PopFront());
  }

  const std::unique_ptr<IoEngine> engine_;
  const IoSchedulerOptions options_;
  const SteadyClock steady_clock_;
  const Clock* const clock_;
  std::atomic<IoTag> next_tag_{1};

  mutable std::mutex mutex_;
  // Under mutex_.
  ReadDispatcher dispatcher_;
  bool waiting_ = false;  // the thread is, or is about to be, in engine_->Wait() and nobody has woken it
  bool stop_ = false;

  // The thread's own.
  std::vector<ReadDispatcher::Submission> to_submit_;
  std::vector<IoCompletion> completions_;
  NodeList<QueuedRead> calling_;
  std::vector<std::pair<int32_t, std::string>> degraded_;
  int64_t timeout_ns_ = -1;
  bool drained_ = true;  // the last Wait() brought all answers that there were
  std::thread thread_;
};

IoScheduler::IoScheduler(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options, const Clock* clock)
    : impl_(std::make_unique<Impl>(std::move(engine), std::move(options), clock)) {}

IoScheduler::~IoScheduler() { impl_->Stop(); }

IoTag IoScheduler::NewTag() { return impl_->NewTag(); }

void IoScheduler::Read(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, Done done) {
  impl_->Read(parts, priority, tag, std::move(done));
}

void IoScheduler::Read(const ReadRequest& request, int32_t drive, IoPriority priority, IoTag tag, Done done) {
  const ReadPart part{.request = request, .drive = drive};
  impl_->Read({&part, 1}, priority, tag, std::move(done));
}

void IoScheduler::Cancel(IoTag tag) { impl_->Cancel(tag); }

void IoScheduler::Raise(IoTag tag, IoPriority priority) { impl_->Raise(tag, priority); }

IoCounters IoScheduler::counters() const { return impl_->counters(); }

std::vector<DriveCounters> IoScheduler::drive_counters() const { return impl_->drive_counters(); }

const std::vector<DriveInfo>& IoScheduler::drives() const { return impl_->drives(); }

std::string IoScheduler::engine_name() const { return impl_->engine_name(); }

}  // namespace deltafin
