#include "io/drive.h"

#include <gtest/gtest.h>

namespace deltafin {
namespace {

TEST(LatencyHistogram, SortsByPowersOfTwoOfMicroseconds) {
  LatencyHistogram latency;
  latency.Add(-5);
  latency.Add(999);        // below a microsecond: the first
  latency.Add(1'999);      // 1 us
  latency.Add(2'000);      // 2 us
  latency.Add(1'000'000);  // 1000 us: [512, 1024)
  latency.Add(INT64_MAX);  // the last takes all above
  EXPECT_EQ(latency.counts[0], 3u);
  EXPECT_EQ(latency.counts[1], 1u);
  EXPECT_EQ(latency.counts[9], 1u);
  EXPECT_EQ(latency.counts[kLatencyBuckets - 1], 1u);
  EXPECT_EQ(latency.total(), 6u);
}

TEST(LatencyHistogram, AQuantileIsTheUpperBoundOfItsBucket) {
  LatencyHistogram latency;
  EXPECT_EQ(latency.Quantile(0.5), 0);
  for (int i = 0; i < 99; ++i) latency.Add(100'000);  // [64, 128) us
  latency.Add(5'000'000);                             // [4096, 8192) us
  EXPECT_DOUBLE_EQ(latency.Quantile(0), 128e-6);
  EXPECT_DOUBLE_EQ(latency.Quantile(0.5), 128e-6);
  EXPECT_DOUBLE_EQ(latency.Quantile(0.99), 128e-6);
  EXPECT_DOUBLE_EQ(latency.Quantile(1), 8192e-6);
}

TEST(LatencyHistogram, SinceLeavesWhatCameLater) {
  LatencyHistogram latency;
  latency.Add(1'500);
  const LatencyHistogram earlier = latency;
  latency.Add(1'500);
  latency.Add(3'000);
  const LatencyHistogram since = latency.Since(earlier);
  EXPECT_EQ(since.total(), 2u);
  EXPECT_EQ(since.counts[0], 1u);
  EXPECT_EQ(since.counts[1], 1u);
}

}  // namespace
}  // namespace deltafin
