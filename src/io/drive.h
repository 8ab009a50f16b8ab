// drive.h: what the readers know about a drive: its name, how fast it was measured, how it is doing.
//
// A drive here is one queue of the I/O scheduler: a folder of an expert set, or the device that holds shards. Numbers
// come from a profile (io/drive_profile.h) or are 0. Value types.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace deltafin {

struct DriveInfo {
  std::string name;             // for people: the folder as the user gave it
  double bytes_per_second = 0;  // measured alone, large reads; 0 = not measured
};

enum class DriveHealth : uint8_t {
  kGood,
  // Failed or hung: reads that have a copy elsewhere no longer come here.
  kDegraded,
};

// Read latencies: bucket b counts reads that took [2^b, 2^(b+1)) microseconds; the last takes all above.
inline constexpr int kLatencyBuckets = 28;
struct LatencyHistogram {
  std::array<uint64_t, kLatencyBuckets> counts{};

  void Add(int64_t nanoseconds);
  uint64_t total() const;
  // Upper bound of the bucket that holds the q-quantile (0..1), in seconds; 0 when empty.
  double Quantile(double q) const;
  LatencyHistogram Since(const LatencyHistogram& earlier) const;
};

struct DriveCounters {
  uint64_t chunks = 0;         // reads that the drive answered
  uint64_t device_bytes = 0;   // bytes it delivered, alignment included
  uint64_t errors = 0;         // reads it failed, each try counted
  uint64_t retries = 0;        // of those, tried again on the same drive
  uint64_t replica_bytes = 0;  // bytes it delivered in another drive's place (balance or fault)
  uint64_t hung = 0;           // reads given up because they took too long
  double busy_seconds = 0;     // time with at least one read in flight
  LatencyHistogram latency;    // from hand-out to answer, of one chunk
  double read_seconds = 0;     // the same, summed
  int most_in_flight = 0;      // chunks at once
  // Gauges, at the moment of asking.
  uint64_t queued_bytes = 0;  // waiting for this drive
  uint64_t in_flight_bytes = 0;
  double bytes_per_second = 0;  // the scheduler's current estimate; 0 = none yet
  DriveHealth health = DriveHealth::kGood;

  // While busy: bytes a second, and chunks in flight on average (Little's law). 0 when nothing was read.
  double busy_rate() const { return busy_seconds > 0 ? static_cast<double>(device_bytes) / busy_seconds : 0; }
  double mean_in_flight() const { return busy_seconds > 0 ? read_seconds / busy_seconds : 0; }
  // What happened since `earlier`; gauges and most_in_flight stay.
  DriveCounters Since(const DriveCounters& earlier) const;
};

}  // namespace deltafin
