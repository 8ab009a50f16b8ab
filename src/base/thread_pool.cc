#include "base/thread_pool.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace deltafin {
namespace {

// Tens of microseconds (a pause takes 5 to 50 ns): longer than the gap between two kernels of a layer, shorter than a read.
constexpr int kSpins = 4000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  DFIN_CHECK(threads >= 1, "a pool has at least the calling thread");
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
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t n, int64_t grain, Callback callback, void* context) {
  if (n <= 0) return;
  const int64_t parts = std::min<int64_t>(threads(), CeilDiv(n, grain));
  if (parts == 1) {
    callback(context, 0, n, 0);
    return;
  }
  n_ = n;
  chunk_ = CeilDiv(CeilDiv(n, grain), parts) * grain;
  callback_ = callback;
  context_ = context;
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  bool anyone_asleep = false;
  {
    const std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
    anyone_asleep = sleepers_ != 0;
  }
  if (anyone_asleep) wake_.notify_all();
  RunPart(0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins)
      Pause();
    else
      std::this_thread::yield();
  }
}

void ThreadPool::RunPart(int worker) {
  const int64_t begin = std::min(n_, chunk_ * worker);
  const int64_t end = std::min(n_, begin + chunk_);
  if (begin < end) callback_(context_, begin, end, worker);
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spins) Pause();
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      --sleepers_;
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    RunPart(worker);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace deltafin
