// read_ends.h: collects how reads of a scheduler ended; lets a test wait for a number of ends. Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/io_scheduler.h"

namespace deltafin::test {

class Ends {
 public:
  IoScheduler::Done Expect(int id) {
    return [this, id](Status status) {
      const std::lock_guard lock(mutex_);
      order_.push_back(id);
      codes_.push_back(status ? "ok" : std::string(ToString(status.error().code())));
      if (!status) last_message_ = status.error().message();
      threads_.push_back(std::this_thread::get_id());
      changed_.notify_all();
    };
  }
  void WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_.size() >= count; });
  }
  std::vector<int> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  std::vector<std::string> codes() {
    const std::lock_guard lock(mutex_);
    return codes_;
  }
  std::vector<std::thread::id> threads() {
    const std::lock_guard lock(mutex_);
    return threads_;
  }
  std::string last_message() {
    const std::lock_guard lock(mutex_);
    return last_message_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> order_;
  std::vector<std::string> codes_;
  std::vector<std::thread::id> threads_;
  std::string last_message_;
};

}  // namespace deltafin::test
