// PacedEngine: drives that are arithmetic: an IoEngine in simulated time, for tests of scheduling over several drives.
//
// Each file belongs to a drive; a drive serves its reads one after the other at its rate, plus a latency that overlaps
// with other reads. Wait() moves the clock to the next event instead of sleeping, so that results are exact and the
// same every time, if all reads are made by callbacks. Brings no bytes. Rates and faults change at given times. Thread
// rule: as for any engine; set up before use; Wake from any thread; the clock may be read from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "io/io_engine.h"

namespace deltafin::test {

class VirtualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(); }
  void Set(int64_t now_ns) { now_ns_ = now_ns; }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

struct PacedDrive {
  double bytes_per_second = 1e9;
  int64_t latency_ns = 80'000;
};

class PacedEngine final : public IoEngine {
 public:
  PacedEngine(VirtualClock* clock, std::vector<PacedDrive> drives, int depth);

  void SetDrive(const DirectFile* file, int32_t drive) { drive_of_[file] = drive; }
  // From `seconds` after the start on. A rate of 0 hangs: what is there and what comes waits for a later rate.
  void SetRateAt(double seconds, int32_t drive, double bytes_per_second);
  // Called for every read when it ends; an error becomes its result.
  void SetFault(std::function<Status(const ReadRequest&)> fault) { fault_ = std::move(fault); }

  double seconds() const { return SecondsBetween(start_ns_, clock_->NowNs()); }
  uint64_t bytes_served(int32_t drive) const { return drives_[static_cast<size_t>(drive)].served; }

  std::string name() const override { return "paced"; }
  int depth() const override { return depth_; }
  void Submit(uint64_t id, const ReadRequest& request) override;
  size_t Wait(std::span<IoCompletion> out, int64_t timeout_ns) override;
  void Wake() override;

 private:
  struct Read {
    uint64_t id;
    ReadRequest request;
    double left;       // bytes
    double latency_s;  // left after the bytes
  };
  struct Drive {
    PacedDrive options;
    std::deque<Read> queue;  // the first is served
    std::vector<Read> late;  // served, in their latency
    uint64_t served = 0;
  };
  struct Change {
    double at;
    int32_t drive;
    double rate;
  };

  double SecondsToNextEvent() const;
  void Advance(double seconds);

  VirtualClock* const clock_;
  const int64_t start_ns_;
  const int depth_;
  std::vector<Drive> drives_;
  std::map<const DirectFile*, int32_t> drive_of_;
  std::vector<Change> changes_;
  std::function<Status(const ReadRequest&)> fault_;
  int in_flight_ = 0;
  double elapsed_ = 0;
  std::vector<IoCompletion> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace deltafin::test
