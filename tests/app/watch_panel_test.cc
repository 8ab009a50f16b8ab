#include "app/watch_panel.h"

#include <gmock/gmock.h>

namespace deltafin {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

WatchSample Sample(int64_t at_ns, uint64_t fast_bytes, uint64_t slow_bytes) {
  WatchSample sample;
  sample.at_ns = at_ns;
  EngineMonitor::Snapshot& s = sample.snapshot;
  s.phase = Phase::kDecode;
  s.done = 11;
  s.total = 21;
  s.layers = 93;
  s.drives = {{"/mnt/fast", 8e9}, {"/mnt/slow", 2e9}};
  s.drive_counters.resize(2);
  s.drive_counters[0].device_bytes = fast_bytes;
  s.drive_counters[1].device_bytes = slow_bytes;
  s.io.device_bytes = fast_bytes + slow_bytes;
  return sample;
}

TEST(WatchPanel, ShowsEachDrivesRateAgainstItsMeasuredLimit) {
  const WatchSample before = Sample(10 * kSecond, 0, 0);
  WatchSample now = Sample(12 * kSecond, 12'000'000'000, 2'000'000'000);
  now.snapshot.drive_counters[0].queued_bytes = 3'000'000;
  now.snapshot.drive_counters[0].in_flight_bytes = 2'000'000;
  const std::vector<std::string> lines = WatchPanel(before, now, 140);
  ASSERT_THAT(lines, SizeIs(static_cast<size_t>(WatchPanelRows(2))));
  EXPECT_THAT(lines[4], HasSubstr("/mnt/fast"));
  EXPECT_THAT(lines[4], HasSubstr("6.00 GB/s"));
  EXPECT_THAT(lines[4], HasSubstr(" 75 %")) << "of 8 GB/s";
  EXPECT_THAT(lines[4], HasSubstr(" 86 %")) << "12 of 14 GB";
  EXPECT_THAT(lines[4], HasSubstr("###############.....")) << "three quarters of the bar";
  EXPECT_THAT(lines[4], HasSubstr("5.00 MB")) << "waiting and in flight";
  EXPECT_THAT(lines[5], HasSubstr("1.00 GB/s"));
  EXPECT_THAT(lines[5], HasSubstr(" 50 %"));
  EXPECT_THAT(lines[6], HasSubstr("7.00 GB/s"));
}

TEST(WatchPanel, LatenciesAreThoseSinceTheEarlierSample) {
  WatchSample before = Sample(0, 0, 0);
  for (int i = 0; i < 1000; ++i) before.snapshot.drive_counters[0].latency.Add(500'000'000);
  WatchSample now = Sample(kSecond, 1, 1);
  now.snapshot.drive_counters[0].latency = before.snapshot.drive_counters[0].latency;
  for (int i = 0; i < 100; ++i) now.snapshot.drive_counters[0].latency.Add(1'000'000);
  const std::vector<std::string> lines = WatchPanel(before, now, 140);
  EXPECT_THAT(lines[4], HasSubstr("1.0 ms"));
  EXPECT_THAT(lines[4], Not(HasSubstr(" s ")));
}

TEST(WatchPanel, SaysWhichDriveIsInTrouble) {
  const WatchSample before = Sample(0, 0, 0);
  WatchSample now = Sample(kSecond, 1, 1);
  now.snapshot.drive_counters[1].health = DriveHealth::kDegraded;
  now.snapshot.drive_counters[1].errors = 7;
  const std::vector<std::string> lines = WatchPanel(before, now, 160);
  EXPECT_THAT(lines[5], HasSubstr("degraded, 7 errors"));
  EXPECT_THAT(lines[4], Not(HasSubstr("degraded")));
}

TEST(WatchPanel, SharesTheTimeBetweenWaitingAndComputing) {
  WatchSample before = Sample(0, 0, 0);
  WatchSample now = Sample(2 * kSecond, 1, 1);
  before.snapshot.cache.wait_seconds = 3;
  now.snapshot.cache.wait_seconds = 4;
  now.snapshot.dense_wait_seconds = 0.5;
  now.snapshot.cache.hits = 30;
  now.snapshot.cache.misses = 70;
  now.snapshot.slots = 64;
  now.snapshot.resident = 60;
  const std::string line = WatchPanel(before, now, 140)[2];
  EXPECT_THAT(line, HasSubstr("experts  50 %, dense  25 %, computing  25 %"));
  EXPECT_THAT(line, HasSubstr("60 of 64 slots"));
  EXPECT_THAT(line, HasSubstr("hits  30 %"));
}

TEST(WatchPanel, SaysHowMuchWasReadAheadAndInVain) {
  const WatchSample before = Sample(0, 0, 0);
  WatchSample now = Sample(kSecond, 1, 1);
  EXPECT_THAT(WatchPanel(before, now, 160)[2], Not(HasSubstr("ahead")));
  now.snapshot.cache.demand_bytes = 60;
  now.snapshot.cache.prefetch_useful_bytes = 36;
  now.snapshot.cache.prefetch_late_bytes = 12;
  now.snapshot.cache.prefetch_wasted_bytes = 4;
  EXPECT_THAT(WatchPanel(before, now, 160)[2], HasSubstr("read ahead  36 % (late  12 %), in vain   4 %"));
}

TEST(WatchPanel, NeverIsWiderThanTheTerminal) {
  const WatchSample before = Sample(0, 0, 0);
  WatchSample now = Sample(kSecond, 1, 1);
  now.snapshot.drives[0].name = std::string(300, 'x');
  for (const int width : {20, 40, 80, 200}) {
    for (const std::string& line : WatchPanel(before, now, width)) EXPECT_LE(line.size(), static_cast<size_t>(width));
  }
}

// The header without spaces at its end.
std::string HeaderAt(int width, const std::string& note) {
  const WatchSample before = Sample(0, 0, 0);
  WatchSample now = Sample(kSecond, 1, 1);
  if (!note.empty()) now.snapshot.drive_counters[1].health = DriveHealth::kDegraded;
  const std::vector<std::string> lines = WatchPanel(before, now, width);
  for (std::string line : lines) {
    if (!line.starts_with("drive ")) continue;
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }
  return "";
}

TEST(WatchPanel, DropsWholeColumnsWhereTheTerminalIsNarrow) {
  for (const char* column : {"now", "of", "share", "queue", "p50", "p99"})
    EXPECT_THAT(HeaderAt(139, ""), HasSubstr(column));
  for (const char* column : {"now", "of", "queue", "p99"}) EXPECT_THAT(HeaderAt(79, ""), HasSubstr(column));
  EXPECT_THAT(HeaderAt(79, "degraded"), HasSubstr("p99"));
  EXPECT_THAT(HeaderAt(39, ""), HasSubstr("now"));
  EXPECT_THAT(HeaderAt(39, ""), HasSubstr("p99"));
  EXPECT_THAT(HeaderAt(39, ""), Not(HasSubstr("queue")));
}

}  // namespace
}  // namespace deltafin
