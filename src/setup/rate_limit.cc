#include "setup/rate_limit.h"

#include <algorithm>

namespace deltafin {

void RateLimit::Take(uint64_t bytes, CancelToken cancel) {
  if (bytes_per_second_ <= 0) return;
  constexpr double kBurstSeconds = 0.25;
  double wait = 0;
  {
    const std::lock_guard lock(mutex_);
    const double now = SecondsBetween(0, clock_.NowNs());
    free_at_seconds_ = std::max(free_at_seconds_, now - kBurstSeconds) + static_cast<double>(bytes) / bytes_per_second_;
    wait = free_at_seconds_ - now;
  }
  if (wait > 0) waiter_.Wait(wait, cancel);
}

}  // namespace deltafin
