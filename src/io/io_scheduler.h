// IoScheduler: the policy of reading, and the one door to the drives: no other code of the engine reads weights.
//
// Holds a queue per priority (demand before prefetch before background, first come first served inside one), cuts reads
// into chunks, keeps a window of bytes in flight, and calls back when a read is done. One thread of its own submits and
// reaps. A cancelled read that has not started never starts.
// Thread-safe. Callbacks run on the scheduler's thread: they must be short, must not block on reads, and may call Read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "io/io_engine.h"

namespace deltafin {

struct IoSchedulerOptions {
  uint64_t chunk_bytes = 2u << 20;    // largest single read handed to the engine
  uint64_t window_bytes = 64u << 20;  // in flight at once (at least one chunk)
};

struct IoCounters {
  uint64_t reads = 0;          // requests that ended with all their bytes
  uint64_t payload_bytes = 0;  // bytes those asked for
  uint64_t device_bytes = 0;   // bytes taken from the device, alignment included
  uint64_t errors = 0;         // requests that failed
  uint64_t cancelled = 0;      // requests that never started
  double busy_seconds = 0;     // time with at least one read in flight
};

class IoScheduler {
 public:
  // Called exactly once for every Read, never inside Read() or Cancel(): all bytes are there, or an error (kIo,
  // kCorrupt, kCancelled). Counted before it is called. Destroyed on the scheduler's thread.
  using Done = std::function<void(Status)>;

  IoScheduler(std::unique_ptr<IoEngine> engine, IoSchedulerOptions options);
  // Cancels what has not started, waits for what has; a Read made by a callback meanwhile is cancelled too.
  ~IoScheduler();
  IoScheduler(const IoScheduler&) = delete;
  IoScheduler& operator=(const IoScheduler&) = delete;

  // A tag that nobody else of this scheduler has, never 0. Everybody who cancels takes theirs from here.
  IoTag NewTag();
  void Read(const ReadRequest& request, IoPriority priority, IoTag tag, Done done);
  // Reads of `tag` that have not started end with kCancelled; those of which a chunk was handed out run to their end.
  void Cancel(IoTag tag);

  IoCounters counters() const;
  std::string engine_name() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltafin
