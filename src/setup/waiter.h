// Waiter: letting time pass, as an interface, so that tests need not wait.
//
// Thread-safe. No errors: Wait() returns early when cancelled.
#pragma once

#include "base/cancel.h"

namespace deltafin {

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual void Wait(double seconds, CancelToken cancel) = 0;
};

// Sleeps, and looks at the token twenty times a second.
class SleepingWaiter final : public Waiter {
 public:
  void Wait(double seconds, CancelToken cancel) override;
};

}  // namespace deltafin
