// DriveWriters: one thread a drive, so that all drives are written at once and in the order that was asked for.
//
// Jobs of one drive run one after the other. After the first error of any job no further job runs, but every group
// still ends. Thread rule: one thread gives jobs and waits. The destructor waits for what was given. Throws
// std::system_error when the system gives no more threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace deltafin {

class DriveWriters {
 public:
  using Job = std::function<Status()>;
  // Jobs that are waited for together; outlives them.
  struct Group {
    int open = 0;  // jobs that have not ended; under the writers' lock
  };

  explicit DriveWriters(size_t drives);
  ~DriveWriters();
  DriveWriters(const DriveWriters&) = delete;
  DriveWriters& operator=(const DriveWriters&) = delete;

  void Give(size_t drive, Group& group, Job job);
  void Wait(const Group& group);
  bool Ended(const Group& group);
  // The first error of any job.
  Status status();

 private:
  struct Task {
    Group* group;
    Job job;
  };
  void Work(size_t drive);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Task>> queues_;
  Status first_error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deltafin
