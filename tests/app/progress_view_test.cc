#include "app/progress_view.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  s.layer = 0;
  s.step_rows = 512;
  s.layers = 93;
  s.io.device_bytes = 300'000'000'000;
  EXPECT_EQ(StatusText(s, 64 * kSecond, 5e9),
            "prompt  512/2048  layer 1/93  300 GB read  5.00 GB/s  8.00 tok/s  3 min 12 s left");
}

TEST(StatusText, ShowsWhatIsFetchedOverTheNetwork) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kPrefill;
  s.total = 9;
  s.layers = 93;
  s.fetch = {.experts = 10, .bytes = 1'000'000'000, .fetched_again = 0, .waiting = 16, .seconds = 10};
  EXPECT_NE(StatusText(s, kSecond / 2, 0).find("  fetching experts: 16 to come, 1.00 GB came at 100 MB/s  "),
            std::string::npos)
      << StatusText(s, kSecond / 2, 0);
}

// 16 of 400 tokens are in the step, a third of its layers are done: 5.33 tokens in 10 s.
TEST(StatusText, EstimatesInsideAChunkFromItsLayers) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kPrefill;
  s.total = 400;
  s.step_rows = 16;
  s.layer = 30;
  s.layers = 90;
  EXPECT_NE(StatusText(s, 10 * kSecond, 0).find("12 min 20 s left"), std::string::npos)
      << StatusText(s, 10 * kSecond, 0);
  s.done = 64;  // the same inside a later chunk: 69.33 tokens in 130 s
  EXPECT_NE(StatusText(s, 130 * kSecond, 0).find("10 min 20 s left"), std::string::npos)
      << StatusText(s, 130 * kSecond, 0);
}

TEST(StatusText, CountsTheFirstNewTokenToThePrompt) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kDecode;
  s.done = 11;
  s.total = 21;
  s.layers = 90;
  const std::string text = StatusText(s, 20 * kSecond, 0);
  EXPECT_NE(text.find("0.50 tok/s"), std::string::npos) << text;
  EXPECT_NE(text.find("20 s left"), std::string::npos) << text;
}

TEST(StatusText, SaysWhenTheNextTokenComesIfTheEndIsUnknown) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kDecode;
  s.done = 3;  // two steps and half of a third took 25 s
  s.step_rows = 1;
  s.layer = 45;
  s.layers = 90;
  EXPECT_NE(StatusText(s, 25 * kSecond, 0).find("5.0 s to the next"), std::string::npos)
      << StatusText(s, 25 * kSecond, 0);
}

TEST(StatusText, CountsFilesWhileOpening) {
  EngineMonitor::Snapshot s;
  s.phase = Phase::kOpen;
  s.done = 12;
  s.total = 96;
  EXPECT_EQ(StatusText(s, kSecond, 0), "opening  12/96 files");
}

TEST(StatusText, IsEmptyWhenIdle) { EXPECT_EQ(StatusText({}, 0, 0), ""); }

TEST(ProgressEvent, CarriesEachDriveWithRateAndLatencyOfTheTimeSinceTheEarlierSample) {
  EngineMonitor::Snapshot before, now;
  before.drives = now.drives = {{"/mnt/a", 0}, {"/mnt/b", 0}};
  before.drive_counters.resize(2);
  before.drive_counters[0].device_bytes = 4'000'000'000;
  for (int i = 0; i < 100; ++i) before.drive_counters[0].latency.Add(500'000'000);
  now.drive_counters = before.drive_counters;
  now.drive_counters[0].device_bytes = 9'000'000'000;
  now.drive_counters[0].queued_bytes = 7;
  now.drive_counters[0].in_flight_bytes = 11;
  now.drive_counters[0].latency.Add(1'000'000);
  now.drive_counters[1].device_bytes = 1'000'000'000;
  now.drive_counters[1].health = DriveHealth::kDegraded;
  now.io.device_bytes = 10'000'000'000;
  now.cache.wait_seconds = 3;
  now.dense_wait_seconds = 0.5;
  now.phase = Phase::kDecode;
  const Json event = ProgressEvent(before, now, 10, 20 * kSecond, 6e8);
  EXPECT_EQ(event["seconds_expert_wait"], 3.0);
  EXPECT_EQ(event["seconds_dense_wait"], 0.5);
  ASSERT_EQ(event["drives"].size(), 2u);
  const Json& a = event["drives"][0];
  EXPECT_EQ(a["name"], "/mnt/a");
  EXPECT_EQ(a["bytes"], 9'000'000'000);
  EXPECT_EQ(a["share"], 0.9);
  EXPECT_EQ(a["bytes_per_second"], 5e8);
  EXPECT_EQ(a["queued_bytes"], 7);
  EXPECT_EQ(a["in_flight_bytes"], 11);
  EXPECT_EQ(a["seconds_p99"], 1024e-6) << "upper bound of 512 to 1024 us";
  EXPECT_EQ(a["health"], "good");
  EXPECT_EQ(event["drives"][1]["health"], "degraded");
}

}  // namespace
}  // namespace deltafin
