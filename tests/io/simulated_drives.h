// simulated_drives.h: drives that are arithmetic: an IoEngine whose reads take simulated time, on a clock that it
// moves.
//
// A read of n bytes on a drive ends at max(now, drive free) + n / rate + latency, and not before its hub passed it on.
// Nothing is read and nothing sleeps, so results are exact and the same every time. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "io/io_engine.h"

namespace deltafin::test {

class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 1'000'000'000;
};

struct SimulatedDrive {
  std::string path = {};  // reads of files whose path begins so are its own
  double direct_rate = 1e9, buffered_rate = 1e9;
  int64_t latency_ns = 100'000;
  int hub = -1;        // index into SimulatedDrives::hub_rates
  bool fails = false;  // every read ends with kIo
  int64_t free_at_ns = 0;
};

struct SimulatedDrives {
  std::vector<SimulatedDrive> drives;
  std::vector<double> hub_rates;
  std::vector<int64_t> hub_free_at_ns;
  ManualClock clock;
  // All reads so far: file path, offset, bytes.
  struct Read {
    std::string path;
    uint64_t offset, bytes;
  };
  std::vector<Read> reads;
  std::function<void()> on_read = {};

  std::unique_ptr<IoEngine> MakeEngine(int depth);
};

}  // namespace deltafin::test
