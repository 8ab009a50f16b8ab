// retry: when a transfer is tried again, and how long is waited before.
//
// The wait doubles from attempt to attempt and is drawn at random from its upper half, so that many transfers that
// failed together do not come back together; a server's Retry-After is kept to. Attempts that brought data do not
// count: a bad line is slow, not hopeless. Thread rule: a Backoff belongs to one transfer.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "base/cancel.h"
#include "base/error.h"
#include "setup/waiter.h"

namespace deltafin {

struct RetryOptions {
  int attempts = 8;  // in a row without data
  double first_seconds = 1;
  double most_seconds = 60;
  double most_retry_after = 900;  // a server that asks for more is not waited for
  uint64_t seed = 0;              // of the jitter
};

// 408, 425, 429, 500, 502, 503 and 504: the same request may succeed later.
bool IsTransientStatus(int status);
// kIo, kDeadline and kCorrupt: what lines and servers do to a transfer.
bool IsTransientError(ErrorCode code);

class Backoff {
 public:
  // The waiter outlives it.
  Backoff(const RetryOptions& options, Waiter& waiter) : options_(options), waiter_(waiter), random_(options.seed) {}

  // The last attempt brought data.
  void Progressed() { failures_ = 0; }
  // After a failure: the seconds to wait before the next attempt. Empty when there is none: too many failures, or a
  // Retry-After that is too long.
  std::optional<double> Plan(std::optional<double> retry_after);
  // Plans, and waits that long. False when there is no next attempt, or cancelled.
  bool Next(std::optional<double> retry_after, CancelToken cancel);
  int failures() const { return failures_; }

 private:
  const RetryOptions options_;
  Waiter& waiter_;
  std::mt19937_64 random_;
  int failures_ = 0;
};

}  // namespace deltafin
