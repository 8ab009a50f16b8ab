// ReadProgress: one read on its way: the widening to the file's alignment, and what each result of a read call means.
//
// The one place where a ReadRequest becomes an aligned range. An engine starts it, makes the read call that it
// describes (offset(), bytes(), destination()), reports the result, and repeats until Advance() says that the read is
// final. EINTR, EAGAIN and short reads ask for another call; errors and an early end of the file become a Status that
// names them. Makes no calls itself. Value type, thread-compatible. No allocation unless the read fails.
#pragma once

#include <cstdint>

#include "io/read_request.h"

namespace deltafin {

class ReadProgress {
 public:
  ReadProgress() = default;
  explicit ReadProgress(const ReadRequest& request);

  // The next call to make: all three multiples of the file's alignment.
  uint64_t offset() const { return start_ + done_; }
  uint64_t bytes() const;
  std::byte* destination() const { return request_.destination + done_; }

  // `result` is what the call returned: bytes read (0 at the end of the file) or -errno. True when the read is final.
  bool Advance(int64_t result);

  const ReadRequest& request() const { return request_; }
  // Of a final read.
  Status TakeStatus() { return std::move(status_); }
  // Bytes taken from the device so far, repeated blocks included.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  bool Again(int error_number);
  bool FailErrno(int error_number);
  bool FailEndOfFile(uint64_t end);

  ReadRequest request_;
  uint64_t start_ = 0;   // request offset rounded down
  uint64_t length_ = 0;  // widened length
  uint64_t done_ = 0;    // whole blocks read, from start_
  uint64_t bytes_read_ = 0;
  int fruitless_ = 0;  // calls in a row that brought nothing
  Status status_;
};

}  // namespace deltafin
