#include "io/drive.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace deltafin {

void LatencyHistogram::Add(int64_t nanoseconds) {
  const auto microseconds = static_cast<uint64_t>(std::max<int64_t>(nanoseconds, 0)) / 1000;
  const int bucket = microseconds == 0 ? 0 : static_cast<int>(std::bit_width(microseconds)) - 1;
  ++counts[static_cast<size_t>(std::min(bucket, kLatencyBuckets - 1))];
}

uint64_t LatencyHistogram::total() const { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

double LatencyHistogram::Quantile(double q) const {
  const uint64_t all = total();
  if (all == 0) return 0;
  // The smallest bucket that holds the read of this rank, counted from 1.
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(all))));
  uint64_t seen = 0;
  int bucket = 0;
  for (; bucket < kLatencyBuckets - 1; ++bucket) {
    seen += counts[static_cast<size_t>(bucket)];
    if (seen >= rank) break;
  }
  return std::ldexp(1e-6, bucket + 1);
}

LatencyHistogram LatencyHistogram::Since(const LatencyHistogram& earlier) const {
  LatencyHistogram since;
  for (size_t b = 0; b < counts.size(); ++b) since.counts[b] = counts[b] - earlier.counts[b];
  return since;
}

DriveCounters DriveCounters::Since(const DriveCounters& earlier) const {
  DriveCounters since = *this;
  since.chunks -= earlier.chunks;
  since.device_bytes -= earlier.device_bytes;
  since.errors -= earlier.errors;
  since.retries -= earlier.retries;
  since.replica_bytes -= earlier.replica_bytes;
  since.hung -= earlier.hung;
  since.busy_seconds -= earlier.busy_seconds;
  since.latency = latency.Since(earlier.latency);
  since.read_seconds -= earlier.read_seconds;
  return since;
}

}  // namespace deltafin
