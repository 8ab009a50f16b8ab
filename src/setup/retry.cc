#include "setup/retry.h"

#include <algorithm>
#include <cmath>

namespace deltafin {

bool IsTransientStatus(int status) {
  return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

bool IsTransientError(ErrorCode code) {
  return code == ErrorCode::kIo || code == ErrorCode::kDeadline || code == ErrorCode::kCorrupt;
}

std::optional<double> Backoff::Plan(std::optional<double> retry_after) {
  if (++failures_ >= options_.attempts) return std::nullopt;
  if (retry_after && *retry_after > options_.most_retry_after) return std::nullopt;
  const double full = std::min(options_.most_seconds, options_.first_seconds * std::ldexp(1.0, failures_ - 1));
  double wait = full * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  // Not before the server said, and not all at once then.
  if (retry_after) wait = std::max(wait, *retry_after + 0.1 * wait);
  return wait;
}

bool Backoff::Next(std::optional<double> retry_after, CancelToken cancel) {
  if (cancel.cancelled()) return false;
  const std::optional<double> wait = Plan(retry_after);
  if (wait) waiter_.Wait(*wait, cancel);
  return wait && !cancel.cancelled();
}

}  // namespace deltafin
