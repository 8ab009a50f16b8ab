#include "base/thread_pool.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/topology.h"

namespace deltafin {
namespace {

constexpr int kCountBits = 8;  // of a share's word, below the loop's number
static_assert(ThreadPool::kMostParts < 1 << kCountBits);

constexpr int kPausesPerLook = 32;  // a pause takes 5 to 50 ns, a look at the clock as long

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : spin_(threads <= UsableCores()) {
  DFIN_CHECK(threads >= 1, "a pool has at least the calling thread");
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(threads));
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  } catch (...) {
    StopWorkers();  // those that did start
    throw;
  }
}

ThreadPool::~ThreadPool() { StopWorkers(); }

void ThreadPool::StopWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    loop_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Status ThreadPool::PinWorkers(std::span<const int> cpus) {
  DFIN_CHECK(cpus.size() == workers_.size() + 1, "a processor for each thread");
  for (size_t i = 0; i < workers_.size(); ++i) DFIN_TRY_VOID(PinThread(workers_[i], cpus[i + 1]));
  return {};
}

void ThreadPool::Run(int64_t n, int64_t grain, Callback callback, void* context) {
  if (n <= 0) return;
  const int64_t grains = CeilDiv(n, grain);
  if (threads() == 1 || grains == 1) {
    callback(context, 0, n, 0);
    return;
  }
  n_ = n;
  share_ = CeilDiv(grains, threads()) * grain;
  part_ = std::max(CeilDiv(CeilDiv(share_, grain), kMostParts), kLeastGrains) * grain;
  callback_ = callback;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t loop = loop_.load(std::memory_order_relaxed) + 1;
  int parts = 0;
  for (int share = 0; share < threads(); ++share) {
    const int64_t begin = std::min(n, share_ * share), end = std::min(n, begin + share_);
    const auto count = static_cast<int>(CeilDiv(end - begin, part_));
    shares_[static_cast<size_t>(share)].left.store(loop << kCountBits | static_cast<uint64_t>(count),
                                                   std::memory_order_release);
    parts += count;
  }
  loop_.store(loop);
  if (sleepers_.load() != 0) {
    { const std::lock_guard lock(mutex_); }  // whoever counted itself is asleep by now
    wake_.notify_all();
  }
  AwaitFinished(parts - RunShares(0, loop));
}

// Until nobody has left a part to take; how many were run.
int ThreadPool::RunShares(int worker, uint64_t loop) {
  int parts = 0;
  for (int i = 0; i < threads(); ++i) {
    const int share = (worker + i) % threads();
    for (int left = TakePart(share, loop); left > 0; left = TakePart(share, loop)) {
      RunPart(share, left, worker);
      ++parts;
    }
  }
  return parts;
}

// How many parts of the share were left when one of them was taken, or 0: none was.
int ThreadPool::TakePart(int share, uint64_t loop) {
  std::atomic<uint64_t>& left = shares_[static_cast<size_t>(share)].left;
  uint64_t now = left.load(std::memory_order_relaxed);
  do {
    if (now >> kCountBits != loop || now == loop << kCountBits) return 0;
  } while (!left.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_relaxed));
  return static_cast<int>(now - (loop << kCountBits));
}

void ThreadPool::RunPart(int share, int parts_left, int worker) {
  const int64_t first = share_ * share, last = std::min(n_, first + share_);
  const int64_t begin = first + (CeilDiv(last - first, part_) - parts_left) * part_;
  callback_(context_, begin, std::min(last, begin + part_), worker);
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t loop = 0;
  for (;;) {
    loop = AwaitLoopAfter(loop);
    if (stop_.load()) return;
    const int parts = RunShares(worker, loop);
    if (parts == 0) continue;
    finished_.fetch_add(parts);
    if (caller_sleeps_.load()) {
      { const std::lock_guard lock(mutex_); }
      done_.notify_one();
    }
  }
}

uint64_t ThreadPool::AwaitLoopAfter(uint64_t seen) {
  const auto is_new = [&] { return loop_.load() != seen; };
  if (!Spin(is_new)) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, is_new);
    sleepers_.fetch_sub(1);
  }
  return loop_.load();
}

void ThreadPool::AwaitFinished(int parts) {
  const auto all_finished = [&] { return finished_.load() == parts; };
  if (Spin(all_finished)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true);
  done_.wait(lock, all_finished);
  caller_sleeps_.store(false);
}

// Whether the condition came true while looking.
template <typename Condition>
bool ThreadPool::Spin(Condition condition) const {
  if (condition()) return true;
  if (!spin_) return false;
  const SteadyClock clock;
  const int64_t end = clock.NowNs() + kSpinNs;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      Pause();
      if (condition()) return true;
    }
  } while (clock.NowNs() < end);
  return false;
}

}  // namespace deltafin
