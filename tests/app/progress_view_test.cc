#include "app/progress_view.h"

#include <gtest/gtest.h>

namespace deltafin {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(StatusText, ShowsLoadingInBytesWithAnEstimate) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kLoad;
  s.done = 25'000'000'000;
  s.total = 100'000'000'000;
  EXPECT_EQ(StatusText(s, 10 * kSecond, 2.5e9), "loading  25.0 GB/100 GB  2.50 GB/s  30 s left");
}

TEST(StatusText, ShowsThePromptWithLayerBytesAndSpeed) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kPrefill;
  s.done = 512;
  s.total = 2048;
  s.layer = 16;
  s.layers = 93;
  s.io.device_bytes = 300'000'000'000;
  EXPECT_EQ(StatusText(s, 64 * kSecond, 5e9),
            "prompt  512/2048  layer 17/93  300 GB read  5.00 GB/s  8.00 tok/s  3 min 12 s left");
}

TEST(StatusText, EstimatesInsideTheFirstChunkFromItsLayers) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kPrefill;
  s.total = 100;
  s.layer = 30;
  s.layers = 90;
  EXPECT_NE(StatusText(s, 10 * kSecond, 0).find("20 s left"), std::string::npos) << StatusText(s, 10 * kSecond, 0);
}

TEST(StatusText, IsEmptyWhenIdle) { EXPECT_EQ(StatusText({}, 0, 0), ""); }

}  // namespace
}  // namespace deltafin
