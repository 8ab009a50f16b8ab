// ReadGroup: reads that are started together and waited for together.
//
// Reusable once Wait() has returned and idle() is true. A read that hangs (kDeadline) counts as ended for the waits,
// but its destination is not free: idle() is false until the drive lets go of it. Allocates nothing per read. Thread
// rule: one thread starts and waits; completions arrive on the scheduler's thread. The destructor waits for all, hung
// ones too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/cancel.h"
#include "base/result.h"
#include "io/io_scheduler.h"

namespace deltafin {

class ReadGroup {
 public:
  ReadGroup() = default;
  ~ReadGroup();
  ReadGroup(const ReadGroup&) = delete;
  ReadGroup& operator=(const ReadGroup&) = delete;

  void Start(IoScheduler& io, const ReadRequest& request, IoPriority priority, IoTag tag, int32_t drive = 0);
  // True when every read has come to a result.
  bool WaitFor(std::chrono::milliseconds limit);
  // The same without a limit; false when cancelled first, which is noticed within 50 ms.
  bool WaitUnless(CancelToken cancel);
  // Whether nothing is written to any destination any more.
  bool idle();
  // Whether only reads that hang keep it from being idle.
  bool hangs();
  // Waits for all reads; the first error of those started since the last Wait().
  Status Wait();

  uint64_t bytes_done();  // payload that has arrived, since the object was made

 private:
  void Finish(uint64_t* bytes, Status status);

  std::mutex mutex_;
  std::condition_variable changed_;
  int in_flight_ = 0;  // without a result
  int hung_ = 0;       // with the result kDeadline, and a destination that is not free
  uint64_t bytes_done_ = 0;
  Status first_error_;
};

}  // namespace deltafin
