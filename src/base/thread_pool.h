// ThreadPool: a fixed set of workers for short parallel loops (one kernel call at a time).
//
// ParallelFor(n, grain, body) cuts [0, n) into at most threads() contiguous ranges whose borders depend only on n,
// grain and threads(), and calls body(begin, end, worker) for each, one of them on the calling thread. Results must not
// depend on the cut: kernels split over output rows, never over a sum. body must not throw and must not call
// ParallelFor. Workers sleep when there is nothing to do (they spin for some microseconds first, since kernels follow
// each other closely), so waiting for a drive costs no power. Thread rule: one caller at a time (the engine thread). No
// allocation after construction.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace deltafin {

class ThreadPool {
 public:
  // `threads` >= 1, the calling thread included. Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Ranges are multiples of `grain` (>= 1) long, except the last.
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

  void Run(int64_t n, int64_t grain, Callback callback, void* context);
  void RunPart(int worker);
  void WorkerLoop(int worker);
  void StopWorkers();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};  // a new value starts the workers
  std::atomic<int> pending_{0};          // workers that have not finished the current loop
  std::atomic<bool> stop_{false};
  int sleepers_ = 0;  // under mutex_
  // The current loop; written before generation_ is raised.
  int64_t n_ = 0;
  int64_t chunk_ = 0;
  Callback callback_ = nullptr;
  void* context_ = nullptr;
};

// Cores this process may run on (affinity and cgroup quota honoured), at least 1.
int UsableCores();

}  // namespace deltafin
