// The figures of a run: what they are computed from, and that the text tells of the request alone.
#include "app/run_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace deltafin {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two drives: 3 GB and 1 GB during the request, after 10 GB of loading from the first.
RunReport Report() {
  RunReport r;
  r.result.tokens = {1, 2, 3};
  r.result.prompt_tokens = 5;
  r.result.seconds_first_token = 4;
  r.result.seconds_total = 10;
  r.result.used.expert_wait_seconds = 5;
  r.result.used.dense_wait_seconds = 2;
  r.engine = "cpu";
  r.drives.resize(2);
  r.drives_before.resize(2);
  r.drives[0].info = {"/mnt/fast", 2e9};
  r.drives[1].info = {"/mnt/slow", 1e9};
  DriveCounters& fast = r.drives[0].counters;
  for (int i = 0; i < 1000; ++i) fast.latency.Add(900'000'000);  // of loading
  fast.device_bytes = 10'000'000'000;
  fast.busy_seconds = 100;
  fast.read_seconds = 100;
  fast.most_in_flight = 30;
  r.drives_before[0] = r.drives[0];
  for (int i = 0; i < 98; ++i) fast.latency.Add(1'500'000);
  for (int i = 0; i < 2; ++i) fast.latency.Add(10'000'000);
  fast.device_bytes += 3'000'000'000;
  fast.busy_seconds += 2;
  fast.read_seconds += 25;
  DriveCounters& slow = r.drives[1].counters;
  slow.device_bytes = 1'000'000'000;
  slow.busy_seconds = 4;
  slow.read_seconds = 4;
  slow.most_in_flight = 8;
  return r;
}

std::string LineOf(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(StatsText, ShowsShareRateQueueAndLatencyOfEachDriveForThisRequestAlone) {
  const std::string text = StatsText(Report());
  // 3 of 4 GB in 2 s; 25 s of reads in 2 s are 12.5 at once; latencies are upper bounds of powers of two microseconds.
  EXPECT_EQ(LineOf(text, "/mnt/fast"),
            "/mnt/fast: 75.0 % of all bytes, 1.50 GB/s while busy, 12.5 reads in flight (30 at most), p50 2.0 ms, p99 "
            "16.4 ms");
  EXPECT_THAT(LineOf(text, "/mnt/slow"), HasSubstr("25.0 % of all bytes, 250 MB/s while busy, 1.0 reads in flight (8"));
}

TEST(StatsText, ShowsOneDriveToo) {
  RunReport r = Report();
  r.drives.resize(1);
  r.drives_before.resize(1);
  EXPECT_THAT(StatsText(r), HasSubstr("/mnt/fast: 100.0 % of all bytes"));
}

TEST(StatsText, LeavesOutADriveThatTheRequestDidNotUse) {
  RunReport r = Report();
  r.drives[0] = r.drives_before[0];
  EXPECT_THAT(StatsText(r), Not(HasSubstr("/mnt/fast")));
}

TEST(StatsText, SharesTheTimeBetweenWaitingAndComputing) {
  EXPECT_THAT(StatsText(Report()), HasSubstr("time: experts 50 %, dense 20 %, computing 30 %\n"));
}

TEST(StatsEvent, CountsEverythingTheProcessRead) {
  const Json drives = StatsEvent(Report())["drives"];
  ASSERT_EQ(drives.size(), 2u);
  EXPECT_EQ(drives[0]["name"], "/mnt/fast");
  EXPECT_EQ(drives[0]["bytes"], 13'000'000'000);
  EXPECT_DOUBLE_EQ(drives[0]["share"].get<double>(), 13.0 / 14);
  EXPECT_DOUBLE_EQ(drives[0]["bytes_per_second"].get<double>(), 13e9 / 102);
  EXPECT_DOUBLE_EQ(drives[0]["chunks_in_flight_mean"].get<double>(), 125.0 / 102);
  EXPECT_EQ(drives[0]["chunks_in_flight_most"], 30);
  EXPECT_DOUBLE_EQ(drives[0]["seconds_p50"].get<double>(), 1.048576);
}

// Layer 1 before the request: 40 of 100 named; in it: 45 of 60, three guesses read in vain.
RunReport WithLookahead() {
  RunReport r = Report();
  r.result.used.record_bytes = r.total.record_bytes = 1'000'000;
  r.lookahead_before = {{1, 100, 40, 10, 4}, {2, 0, 0, 0, 0}};
  r.lookahead = {{1, 160, 85, 22, 7}, {2, 0, 0, 0, 0}};
  return r;
}

TEST(StatsText, ShowsTheGuessesOfEachLayerForThisRequestAlone) {
  const std::string text = StatsText(WithLookahead());
  EXPECT_THAT(text, HasSubstr("\n    1:  75 %  3.00 MB\n"));
  EXPECT_THAT(text, Not(HasSubstr("  2: ")));
  EXPECT_THAT(StatsText(Report()), Not(HasSubstr("by layer")));
}

TEST(StatsEvent, ListsTheGuessesOfEveryLayer) {
  const Json layers = StatsEvent(WithLookahead())["lookahead"];
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0]["layer"], 1);
  EXPECT_EQ(layers[0]["wanted"], 160);
  EXPECT_EQ(layers[0]["predicted"], 85);
  EXPECT_DOUBLE_EQ(layers[0]["recall"].get<double>(), 85.0 / 160);
  EXPECT_EQ(layers[0]["read_ahead"], 22);
  EXPECT_EQ(layers[0]["wrong"], 7);
  EXPECT_EQ(layers[0]["wasted_bytes_most"], 7'000'000);
  EXPECT_EQ(layers[1]["recall"], 0);
}

}  // namespace
}  // namespace deltafin
