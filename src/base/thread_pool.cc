#include "base/thread_pool.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/topology.h"

namespace deltafin {
namespace {

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
  parts_ = std::make_unique<Part[]>(static_cast<size_t>(threads));
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
  const int64_t parts = std::min<int64_t>(threads(), CeilDiv(n, grain));
  if (parts == 1) {
    callback(context, 0, n, 0);
    return;
  }
  n_ = n;
  chunk_ = CeilDiv(CeilDiv(n, grain), parts) * grain;
  callback_ = callback;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t loop = loop_.fetch_add(1) + 1;
  if (sleepers_.load() != 0) {
    { const std::lock_guard lock(mutex_); }  // whoever counted itself is asleep by now
    wake_.notify_all();
  }
  RunPart(0, 0);
  int of_workers = 0;
  for (int part = 1; part < threads(); ++part) {
    if (TakePart(part, loop))
      RunPart(part, 0);
    else
      ++of_workers;
  }
  AwaitFinished(of_workers);
}

bool ThreadPool::TakePart(int part, uint64_t loop) {
  std::atomic<uint64_t>& taken_in = parts_[static_cast<size_t>(part)].taken_in;
  uint64_t last = taken_in.load(std::memory_order_relaxed);
  return last < loop && taken_in.compare_exchange_strong(last, loop, std::memory_order_acq_rel);
}

void ThreadPool::RunPart(int part, int worker) {
  const int64_t begin = std::min(n_, chunk_ * part);
  const int64_t end = std::min(n_, begin + chunk_);
  if (begin < end) callback_(context_, begin, end, worker);
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t loop = 0;
  for (;;) {
    loop = AwaitLoopAfter(loop);
    if (stop_.load()) return;
    if (!TakePart(worker, loop)) continue;
    RunPart(worker, worker);
    finished_.fetch_add(1);
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
