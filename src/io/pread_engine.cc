#include "io/pread_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "io/fixed_queue.h"
#include "io/read_progress.h"

namespace deltafin {
namespace {

// More threads only cost stacks: large reads keep many drives busy with fewer.
constexpr int kMaxThreads = 128;

class PreadEngine final : public IoEngine {
 public:
  explicit PreadEngine(int depth)
      : reads_(static_cast<size_t>(depth)), free_(depth), waiting_(depth), finished_(depth) {
    for (int slot = 0; slot < depth; ++slot) free_.Push(slot);
    threads_.reserve(static_cast<size_t>(depth));
    try {
      for (int i = 0; i < depth; ++i) threads_.emplace_back([this] { ReadLoop(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // with one reader it is slow, with none it is nothing
    }
  }

  // Reads in flight end first.
  ~PreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string name() const override { return "pread"; }
  // One thread a read: a read that hangs must not hold up another that the scheduler has found room for.
  int depth() const override { return static_cast<int>(threads_.size()); }

  void Submit(uint64_t id, const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      DFIN_CHECK(!free_.empty(), "more reads submitted than the engine's depth");
      const int slot = free_.Pop();
      reads_[static_cast<size_t>(slot)] = {id, ReadProgress(request)};
      waiting_.Push(slot);
    }
    work_.notify_one();
  }

  size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) override {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return woken_ || !finished_.empty(); };
    if (timeout_ns < 0) {
      done_.wait(lock, ready);
    } else {
      done_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), ready);
    }
    woken_ = false;
    size_t count = 0;
    for (; count < out.size() && !finished_.empty(); ++count) {
      const int slot = finished_.Pop();
      InFlight& read = reads_[static_cast<size_t>(slot)];
      out[count] = {read.id, read.progress.TakeStatus(), read.progress.bytes_read()};
      free_.Push(slot);
    }
    return count;
  }

  void Wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    done_.notify_one();
  }

 private:
  struct InFlight {
    uint64_t id = 0;
    ReadProgress progress;
  };

  void ReadLoop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const int slot = waiting_.Pop();
      lock.unlock();
      ReadAll(reads_[static_cast<size_t>(slot)].progress);
      lock.lock();
      finished_.Push(slot);
      done_.notify_one();
    }
  }

  static void ReadAll(ReadProgress& progress) {
    const int fd = progress.request().file->fd();
    int64_t result = 0;
    do {
      result = pread(fd, progress.destination(), progress.bytes(), static_cast<off_t>(progress.offset()));
      if (result < 0) result = -errno;
    } while (!progress.Advance(result));
  }

  std::mutex mutex_;
  std::condition_variable work_;          // something is waiting_, or stop_
  std::condition_variable done_;          // something is finished_, or woken_
  std::vector<InFlight> reads_;           // [depth]
  FixedQueue free_, waiting_, finished_;  // slots of reads_
  bool woken_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> CreatePreadEngine(int depth) {
  DFIN_CHECK(depth >= 1, "an engine has a depth of at least one");
  return std::make_unique<PreadEngine>(std::min(depth, kMaxThreads));
}

}  // namespace deltafin
