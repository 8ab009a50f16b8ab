// ThreadPool: a fixed set of workers for short parallel loops (one kernel call at a time).
//
// ParallelFor(n, grain, body) cuts [0, n) into a contiguous share for each thread and a share into at most kMostParts
// parts, with borders that depend only on n, grain and threads(), and calls body(begin, end, worker) for each part,
// where `worker` (below threads()) is the thread that runs it. A thread works through its own share, then takes parts
// that others have not begun: a loop never waits long for a worker that sleeps, is kept off its processor, or has a
// slower one. Results must not depend on the cut or on who runs a part: kernels split over output rows, never over a
// sum. body must not throw and must not call ParallelFor.
//
// Workers without work, and a caller whose workers are not through, look for kSpinNs (kernels follow each other
// closely), then sleep: waiting for a drive costs no power. With more threads than processors they sleep at once.
// Thread rule: one caller at a time (the engine thread). No allocation after construction.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace deltafin {

class ThreadPool {
 public:
  // Longer than the gap between two kernels of a layer, shorter than a read.
  static constexpr int64_t kSpinNs = 40'000;

  static constexpr int kMostParts = 4;  // of a share
  // Parts shorter than this are not worth a cut: where they begin, what was asked for ahead has not come yet.
  static constexpr int64_t kLeastGrains = 8;

  // `threads` >= 1, the calling thread included. Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Worker i runs on processor cpus[i] only, from now on; [threads()]. The caller's thread is left alone although
  // cpus[0] is kept free for it: threads that it starts later (readers, views) would inherit its one processor, and the
  // system finds the free one by itself. kUnavailable: some are pinned.
  Status PinWorkers(std::span<const int> cpus);

  // Parts are multiples of `grain` (>= 1) long, except the last.
  template <typename Body>
  void ParallelFor(int64_t n, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    Run(
        n, grain,
        [](void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<Plain*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Callback = void (*)(void* context, int64_t begin, int64_t end, int worker);
  static constexpr size_t kCacheLine = 64;

  // Loops are numbered 1, 2, 3, ... A share holds the loop's number and how many of its parts nobody has taken, in one
  // word. When a loop is over nothing is left of it, so a worker that comes late finds nothing to take, or another
  // loop's number, and looks at nothing else of that loop.
  struct alignas(kCacheLine) Share {
    std::atomic<uint64_t> left{0};
  };

  void Run(int64_t n, int64_t grain, Callback callback, void* context);
  int RunShares(int worker, uint64_t loop);
  int TakePart(int share, uint64_t loop);
  void RunPart(int share, int parts_left, int worker);
  void WorkerLoop(int worker);
  uint64_t AwaitLoopAfter(uint64_t seen);
  void AwaitFinished(int parts);
  template <typename Condition>
  bool Spin(Condition condition) const;
  void StopWorkers();

  const bool spin_;
  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;  // [threads]
  // The current loop; written before its shares are, read by those who took a part of it.
  int64_t n_ = 0;
  int64_t share_ = 0;  // length of a share
  int64_t part_ = 0;   // length of a part
  Callback callback_ = nullptr;
  void* context_ = nullptr;
  // What somebody waits for by looking at it has a cache line of its own.
  alignas(kCacheLine) std::atomic<uint64_t> loop_{0};  // a new number starts the workers
  alignas(kCacheLine) std::atomic<int> finished_{0};   // parts of the loop that workers have finished
  // Who sleeps. Each pair (loop_, sleepers_) and (finished_, caller_sleeps_) is written and read crosswise in one total
  // order: either the sleeper sees the news, or the other side sees the sleeper.
  alignas(kCacheLine) std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;  // workers
  std::condition_variable done_;  // the caller
};

// Processors this process may run on (affinity and cgroup quota honoured), at least 1.
int UsableCores();

}  // namespace deltafin
