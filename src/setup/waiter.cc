#include "setup/waiter.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace deltafin {

void SleepingWaiter::Wait(double seconds, CancelToken cancel) {
  using Clock = std::chrono::steady_clock;
  constexpr double kMostSeconds = 86400;  // keeps the sum below from overflowing
  const auto length = std::chrono::duration<double>(std::clamp(seconds, 0.0, kMostSeconds));
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(length);
  while (!cancel.cancelled() && Clock::now() < end)
    std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(50)));
}

}  // namespace deltafin
