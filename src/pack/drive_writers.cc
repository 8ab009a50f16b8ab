#include "pack/drive_writers.h"

#include <utility>

namespace deltafin {

DriveWriters::DriveWriters(size_t drives) : queues_(drives) {
  try {
    for (size_t d = 0; d < drives; ++d) threads_.emplace_back([this, d] { Work(d); });
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

DriveWriters::~DriveWriters() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DriveWriters::Give(size_t drive, Group& group, Job job) {
  {
    const std::lock_guard lock(mutex_);
    ++group.open;
    queues_[drive].push_back({&group, std::move(job)});
  }
  changed_.notify_all();
}

void DriveWriters::Wait(const Group& group) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return group.open == 0; });
}

bool DriveWriters::Ended(const Group& group) {
  const std::lock_guard lock(mutex_);
  return group.open == 0;
}

Status DriveWriters::status() {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

void DriveWriters::Work(size_t drive) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queues_[drive].empty(); });
    if (queues_[drive].empty()) return;
    Task task = std::move(queues_[drive].front());
    queues_[drive].pop_front();
    if (first_error_) {
      lock.unlock();
      Status status = task.job();
      task.job = nullptr;
      lock.lock();
      if (!status && first_error_) first_error_ = std::move(status);
    }
    if (--task.group->open == 0) changed_.notify_all();
  }
}

}  // namespace deltafin
