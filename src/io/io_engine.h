// IoEngine: the mechanism of reading: many positioned reads in flight, completions in any order.
//
// Implementations: io_uring (uring_engine.h), a pool of preading threads (pread_engine.h), and fakes in tests/support.
// An engine hides EINTR, EAGAIN and short reads: a completion is final, and either all wanted bytes are there or it
// carries an error that names file, offset, length and errno. Nothing here knows priorities, experts or drives. Thread
// rule: thread-compatible; one thread submits and waits (the I/O scheduler's).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "io/read_request.h"

namespace deltafin {

struct IoCompletion {
  uint64_t id = 0;          // as given to Submit
  Status status;            // kIo when the device failed, kCorrupt when the file ended before the wanted bytes
  uint64_t bytes_read = 0;  // from the device, widening included
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;

  // "uring" or "pread".
  virtual std::string name() const = 0;
  // Reads that may be in flight at once; Submit beyond it is a programmer error.
  virtual int depth() const = 0;

  virtual void Submit(uint64_t id, const ReadRequest& request) = 0;
  // Blocks until at least one completion, a Wake(), or the timeout (< 0: none); writes up to out.size() and returns how
  // many.
  virtual size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) = 0;
  // Makes a Wait() in progress (or the next one) return. The only call that other threads may make.
  virtual void Wake() = 0;
};

struct IoEngineOptions {
  std::string kind = "auto";  // auto | uring | pread
  int depth = 64;
};

// "auto" takes io_uring where the kernel allows it, else pread (and *note, if given, says why). "uring" where it is not
// available is kUnavailable with the reason.
Result<std::unique_ptr<IoEngine>> CreateIoEngine(const IoEngineOptions& options, std::string* note = nullptr);

}  // namespace deltafin
