// ReadGroup: reads that are started together and waited for together.
//
// Reusable once Wait() has returned and idle() is true. A read that hangs (kDeadline) counts as ended for the waits,
// but its destination is not free: idle() is false until the drive lets go of it. Nothing here waits longer than the
// caller asked for, the destructor not at all: the memory that reads write into belongs to the group too, and lives
// until the last of them is over. The files must live until then (the scheduler's destructor waits for it). Allocates
// nothing per read. Thread rule: one thread starts and waits; completions arrive on the scheduler's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/result.h"
#include "io/io_scheduler.h"

namespace deltafin {

class ReadGroup {
 public:
  explicit ReadGroup(std::shared_ptr<const AlignedBuffer> memory = nullptr);
  ~ReadGroup();
  ReadGroup(const ReadGroup&) = delete;
  ReadGroup& operator=(const ReadGroup&) = delete;

  // Where the destinations of all reads lie, from now on. Only while idle, and before the first Start().
  void SetMemory(std::shared_ptr<const AlignedBuffer> memory);
  void Start(IoScheduler& io, const ReadRequest& request, IoPriority priority, IoTag tag, int32_t drive = 0);
  // True when every read has come to a result.
  bool WaitFor(std::chrono::milliseconds limit);
  // The same without a limit; false when cancelled first, which is noticed within 50 ms.
  bool WaitUnless(CancelToken cancel);
  // Whether nothing is written to any destination any more.
  bool idle();
  // Whether only reads that hang keep it from being idle.
  bool hangs();
  // Whether one of those started since the last Wait() has failed.
  bool failed();
  // Waits for all reads; the first error of those started since the last Wait().
  Status Wait();

  uint64_t bytes_done();  // payload that has arrived, since the object was made

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace deltafin
