// RateLimit: keeps many transfers together below a rate.
//
// Whoever has received bytes waits until their turn is over; so the sum stays at the rate, after a first burst of a
// quarter of a second's worth. Thread-safe. No errors: waiting ends early when cancelled.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/cancel.h"
#include "base/clock.h"
#include "setup/waiter.h"

namespace deltafin {

class RateLimit {
 public:
  // 0: no limit. Clock and waiter outlive it.
  RateLimit(uint64_t bytes_per_second, const Clock& clock, Waiter& waiter)
      : bytes_per_second_(static_cast<double>(bytes_per_second)), clock_(clock), waiter_(waiter) {}

  // Returns when `bytes` more may have been received.
  void Take(uint64_t bytes, CancelToken cancel);

 private:
  const double bytes_per_second_;
  const Clock& clock_;
  Waiter& waiter_;
  std::mutex mutex_;
  double free_at_seconds_ = 0;  // by the clock: when everything taken so far is paid for
};

}  // namespace deltafin
