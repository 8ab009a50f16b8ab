// clock.h: monotonic time, as an interface.
//
// Code that measures or waits takes a Clock, so that tests can move time by hand. Never the time of day. Thread-safe.
// Units: nanoseconds from an arbitrary start.
#pragma once

#include <chrono>
#include <cstdint>

namespace deltafin {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;  // nanoseconds since an arbitrary start
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

inline double SecondsBetween(int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) * 1e-9; }

}  // namespace deltafin
