// Measuring drives: on simulated ones, whose true figures are known.
#include "io/drive_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/units.h"
#include "io/drive_grid.h"
#include "io/drive_spans.h"
#include "io/drive_test_file.h"
#include "io/simulated_drives.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// --- the grid ---

DriveMeasurement Cell(uint64_t block, int depth, double rate) { return {block, depth, true, rate, 0, 0}; }

// The grid of a drive of `rate` whose reads take `latency` more.
std::vector<DriveMeasurement> WalkGrid(double rate, double latency, const CellLimits& limits) {
  std::vector<DriveMeasurement> cells;
  while (const auto next = NextSetting(cells, limits)) {
    const double block = static_cast<double>(next->block_bytes);
    cells.push_back(
        Cell(next->block_bytes, next->depth, std::min(rate, next->depth * block / (block / rate + latency))));
  }
  return cells;
}

TEST(DriveGrid, BeginsWithOneSmallReadAndVisitsNoSettingTwice) {
  const auto cells = WalkGrid(7e9, 2e-3, {0.5, 1 * kGiB});
  EXPECT_EQ(cells.front().block_bytes, 64 * kKiB);
  EXPECT_EQ(cells.front().depth, 1);
  std::vector<std::pair<uint64_t, int>> seen;
  for (const DriveMeasurement& m : cells) seen.emplace_back(m.block_bytes, m.depth);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(cells.back().block_bytes, 16 * kMiB);
  EXPECT_LE(cells.size(), 26u);
}

TEST(DriveGrid, NeverHasMoreInFlightThanItsLimits) {
  for (const DriveMeasurement& m : WalkGrid(7e9, 2e-3, {0.5, 40 * kMiB}))
    EXPECT_LE(m.block_bytes * static_cast<uint64_t>(m.depth), 10 * kMiB);
  // At 54 MB/s a quarter of 0.4 s is 5.4 MB.
  for (const DriveMeasurement& m : WalkGrid(54e6, 1e-4, {0.4, 1 * kGiB}))
    EXPECT_LE(m.block_bytes * static_cast<uint64_t>(m.depth), 5'400'000u);
}

TEST(DriveGrid, LeavesABlockSizeAfterTwoDoublingsThatGainedNothing) {
  const CellLimits limits{1, 4 * kGiB};
  std::vector<DriveMeasurement> cells = {Cell(64 * kKiB, 1, 1e9), Cell(64 * kKiB, 2, 1.01e9)};
  EXPECT_EQ(NextSetting(cells, limits), (DriveSetting{64 * kKiB, 4}));
  cells.push_back(Cell(64 * kKiB, 4, 1.02e9));
  EXPECT_EQ(NextSetting(cells, limits), (DriveSetting{256 * kKiB, 1}));
  cells.back().bytes_per_second = 1.1e9;
  EXPECT_EQ(NextSetting(cells, limits), (DriveSetting{64 * kKiB, 8}));
}

TEST(DriveGrid, TakesTheShortestQueueThatIsAsFastAsAny) {
  const std::vector<DriveMeasurement> cells = {Cell(64 * kKiB, 32, 5e9), Cell(kMiB, 4, 6.95e9), Cell(kMiB, 8, 7.0e9),
                                               Cell(4 * kMiB, 1, 6.80e9)};
  const DriveMeasurement best = BestSetting(cells);
  EXPECT_EQ(best.block_bytes, kMiB);
  EXPECT_EQ(best.depth, 4);
}

TEST(DriveGrid, BufferedIsTakenOnlyWhenClearlyFasterAndNotCached) {
  EXPECT_TRUE(PrefersDirect(1.0e9, 1.04e9, false));
  EXPECT_FALSE(PrefersDirect(1.35e9, 1.9e9, false));
  EXPECT_TRUE(PrefersDirect(1.35e9, 1.9e9, true));
  EXPECT_TRUE(LooksCached(1e9, 2.1e9));
  EXPECT_FALSE(LooksCached(1e9, 1.9e9));
}

TEST(DriveGrid, DrivesShareALimitBelowNineTenthsOfTheirSum) {
  EXPECT_TRUE(SharesLimit(8.9, 10));
  EXPECT_FALSE(SharesLimit(9.1, 10));
}

// --- places to read ---

TEST(UnreadSpans, HandOutEveryWholeRegionOnce) {
  UnreadSpans spans({3 * UnreadSpans::kRegion + 5, 100, 2 * UnreadSpans::kRegion});
  EXPECT_EQ(spans.total_bytes(), 5 * UnreadSpans::kRegion);
  std::map<std::pair<size_t, uint64_t>, int> seen;
  while (const auto span = spans.Next(kMiB)) ++seen[{span->file, span->offset}];
  EXPECT_EQ(seen.size(), 5 * 16u);
  for (const auto& [place, times] : seen) EXPECT_EQ(times, 1) << place.first << " " << place.second;
  EXPECT_EQ(spans.bytes_left(), 0u);
}

TEST(UnreadSpans, OfChangingSizesDoNotOverlap) {
  UnreadSpans spans({8 * UnreadSpans::kRegion});
  std::vector<UnreadSpans::Span> all;
  for (const uint64_t block : {64 * kKiB, 4 * kMiB, 256 * kKiB, 16 * kMiB, kMiB, 16 * kMiB})
    for (int i = 0; i < 3; ++i)
      if (const auto span = spans.Next(block)) all.push_back(*span);
  ASSERT_GT(all.size(), 12u);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i].offset, all[i - 1].offset + all[i - 1].bytes);
}

TEST(UnreadSpans, AheadIsWhatComesNext) {
  UnreadSpans spans({4 * UnreadSpans::kRegion});
  ASSERT_TRUE(spans.Next(4 * kMiB));
  const auto ahead = spans.Ahead(20 * kMiB);
  ASSERT_EQ(ahead.size(), 2u);
  EXPECT_EQ(ahead[0].bytes, 12 * kMiB);
  EXPECT_EQ(ahead[1].bytes, 8 * kMiB);
  EXPECT_EQ(spans.Next(4 * kMiB)->offset, ahead[0].offset);
}

// --- whole measurements ---

class DriveProbeTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // A drive with one large file (that takes no room).
  ProbeTarget AddDrive(test::SimulatedDrive drive, uint64_t bytes = 2 * kGiB) {
    const std::string name = "d" + std::to_string(simulated_.drives.size());
    const std::string folder = folder_ + "/" + name;
    fs::create_directories(folder);
    const std::string file = folder + "/experts.bin";
    std::ofstream(file) << "x";
    fs::resize_file(file, bytes);
    drive.path = folder;
    simulated_.drives.push_back(drive);
    ProbeTarget target{folder, {}, {file}};
    target.drive.identity = "sim:" + name;
    target.drive.device = name;
    return target;
  }
  ProbeOptions Options() {
    ProbeOptions options;
    options.seconds = 12;
    options.clock = &simulated_.clock;
    options.make_engine = [this](int depth) -> Result<std::unique_ptr<IoEngine>> {
      return simulated_.MakeEngine(depth);
    };
    return options;
  }
  Result<ProbeReport> Probe(const std::vector<ProbeTarget>& targets) {
    return ProbeDrives(targets, Options(), {}, cancel_.token());
  }
  // File systems without direct reads make every simulated read a buffered one.
  bool HasDirectReads() {
    const std::string file = folder_ + "/try";
    std::ofstream(file) << std::string(8192, 'x');
    const Result<DirectFile> opened = DirectFile::Open(file);
    return opened && !opened->buffered();
  }

  const std::string folder_ = testing::TempDir() + "/drive_probe_" + std::to_string(getpid());
  test::SimulatedDrives simulated_;
  CancelSource cancel_;
};

// `measured` within two parts in a hundred of `expected`.
void ExpectRate(double measured, double expected) { EXPECT_NEAR(measured / expected, 1.0, 0.02) << measured; }

TEST_F(DriveProbeTest, FindsTheRateOfADrive) {
  const auto target = AddDrive({.direct_rate = 2e9, .buffered_rate = 1e9, .latency_ns = 500'000});
  if (!HasDirectReads()) GTEST_SKIP() << "no direct reads in " << folder_;
  const Result<ProbeReport> report = Probe({target});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->drives.size(), 1u);
  const ProbedDrive& drive = report->drives[0];
  ExpectRate(drive.profile.bytes_per_second, 2e9);
  EXPECT_TRUE(drive.profile.direct);
  ExpectRate(drive.buffered_bytes_per_second, 1e9);
  EXPECT_EQ(drive.profile.identity, "sim:d0");
  EXPECT_FALSE(drive.own_file);
  // One read of 64 KiB at a time: 33 us of transfer and 500 us of latency.
  ExpectRate(drive.profile.grid[0].bytes_per_second, 65536 / (65536 / 2e9 + 500e-6));
  EXPECT_NEAR(drive.profile.grid[0].latency_p50_seconds, 533e-6, 2e-6);
}

TEST_F(DriveProbeTest, FindsTheRateOfASlowDriveInAShortTime) {
  const auto target = AddDrive({.direct_rate = 54e6, .buffered_rate = 54e6, .latency_ns = 80'000});
  const Result<ProbeReport> report = Probe({target});
  ASSERT_TRUE(report) << report.error().message();
  ExpectRate(report->drives[0].profile.bytes_per_second, 54e6);
  EXPECT_LT(SecondsBetween(1'000'000'000, simulated_.clock.now_ns), 24.0);
}

TEST_F(DriveProbeTest, ReadsNoPlaceTwice) {
  const auto a = AddDrive({.direct_rate = 3e9, .buffered_rate = 3e9}), b = AddDrive({});
  ASSERT_TRUE(Probe({a, b}));
  std::sort(simulated_.reads.begin(), simulated_.reads.end(),
            [](const auto& x, const auto& y) { return x.path != y.path ? x.path < y.path : x.offset < y.offset; });
  ASSERT_GT(simulated_.reads.size(), 100u);
  for (size_t i = 1; i < simulated_.reads.size(); ++i) {
    const auto &before = simulated_.reads[i - 1], &read = simulated_.reads[i];
    if (before.path == read.path) {
      ASSERT_GE(read.offset, before.offset + before.bytes) << read.path;
    }
  }
}

TEST_F(DriveProbeTest, ChoosesBufferedReadsWhereTheyAreFaster) {
  const auto target = AddDrive({.direct_rate = 1.35e9, .buffered_rate = 2e9});
  if (!HasDirectReads()) GTEST_SKIP() << "no direct reads in " << folder_;
  const Result<ProbeReport> report = Probe({target});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->drives[0].profile.direct);
  EXPECT_FALSE(report->drives[0].buffered_cached);
  ExpectRate(report->drives[0].profile.bytes_per_second, 2e9);
}

TEST_F(DriveProbeTest, DoesNotBelieveBufferedReadsOutOfACache) {
  const auto target = AddDrive({.direct_rate = 1e9, .buffered_rate = 8e9});
  if (!HasDirectReads()) GTEST_SKIP() << "no direct reads in " << folder_;
  const Result<ProbeReport> report = Probe({target});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->drives[0].buffered_cached);
  EXPECT_TRUE(report->drives[0].profile.direct);
  ExpectRate(report->drives[0].profile.bytes_per_second, 1e9);
}

TEST_F(DriveProbeTest, NamesDrivesThatShareALimit) {
  simulated_.hub_rates = {1.2e9};
  const auto a = AddDrive({.direct_rate = 1e9, .hub = 0}), b = AddDrive({.direct_rate = 1e9, .hub = 0}),
             c = AddDrive({.direct_rate = 0.8e9, .buffered_rate = 0.8e9});
  if (!HasDirectReads()) GTEST_SKIP() << "no direct reads in " << folder_;
  const Result<ProbeReport> report = Probe({a, b, c});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->pairs.size(), 3u);
  EXPECT_TRUE(report->pairs[0].shares_limit);
  EXPECT_NEAR(report->pairs[0].part_of_alone, 0.6, 0.02);
  EXPECT_FALSE(report->pairs[1].shares_limit);
  EXPECT_FALSE(report->pairs[2].shares_limit);
  ASSERT_EQ(report->together.size(), 3u);
  ExpectRate(report->together[0] + report->together[1], 1.2e9);
  ExpectRate(report->together[2], 0.8e9);
  // What pack asks for: the rate with both others.
  const DriveProfile& profile = report->drives[2].profile;
  ASSERT_EQ(profile.together.size(), 3u);
  EXPECT_EQ(profile.together[2].others, (std::vector<std::string>{"sim:d0", "sim:d1"}));
  ExpectRate(profile.together[2].bytes_per_second, 0.8e9);
}

TEST_F(DriveProbeTest, MeasuresUnequalDrivesTogetherForTheSameTime) {
  const auto fast = AddDrive({.direct_rate = 272e6, .buffered_rate = 272e6}),
             slow = AddDrive({.direct_rate = 54e6, .buffered_rate = 54e6});
  const Result<ProbeReport> report = Probe({fast, slow});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->together.size(), 2u);
  ExpectRate(report->together[0], 272e6);
  ExpectRate(report->together[1], 54e6);
}

TEST_F(DriveProbeTest, ADriveThatFailsIsSkippedWithTheReasonAndOthersAreMeasured) {
  const auto bad = AddDrive({.fails = true}), good = AddDrive({});
  const Result<ProbeReport> report = Probe({bad, good});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->skipped.size(), 1u);
  EXPECT_EQ(report->skipped[0].device, "d0");
  EXPECT_THAT(report->skipped[0].reason, HasSubstr("Input/output error"));
  ASSERT_EQ(report->drives.size(), 1u);
  EXPECT_EQ(report->drives[0].drive.device, "d1");
}

TEST_F(DriveProbeTest, AFileThatIsMissingOrTooSmallIsAReasonToSkip) {
  auto missing = AddDrive({});
  fs::remove(missing.files[0]);
  const auto small = AddDrive({}, 1000);
  const Result<ProbeReport> report = Probe({missing, small});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->skipped.size(), 2u);
  EXPECT_EQ(report->skipped[0].code, ErrorCode::kNotFound);
  EXPECT_EQ(report->skipped[1].code, ErrorCode::kInvalidArgument);
}

TEST_F(DriveProbeTest, AFileThatIsSoonReadThroughStillGivesARate) {
  const auto target = AddDrive({.direct_rate = 1e9, .buffered_rate = 1e9}, 2 * UnreadSpans::kRegion);
  const Result<ProbeReport> report = Probe({target});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->drives.size(), 1u);
  EXPECT_GT(report->drives[0].profile.bytes_per_second, 1e8);
  EXPECT_LE(report->drives[0].profile.bytes_per_second, 1.02e9);
}

TEST_F(DriveProbeTest, StopsWhenAsked) {
  const auto target = AddDrive({});
  simulated_.on_read = [&] {
    if (simulated_.reads.size() == 50) cancel_.Cancel();
  };
  const Result<ProbeReport> report = Probe({target});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kCancelled);
}

TEST_F(DriveProbeTest, ItsOwnTestFileLeavesNothingBehind) {
  simulated_.drives.push_back({.path = folder_, .direct_rate = 1e8, .buffered_rate = 1e8});
  bool seen_during_reads = false;
  simulated_.on_read = [&] { seen_during_reads |= !fs::is_empty(folder_); };
  ProbeOptions options = Options();
  options.test_file_bytes = kLeastOwnBytes;
  const Result<ProbeReport> report = ProbeDrives({{folder_, {}, {}}}, options, {}, {});
  ASSERT_TRUE(report) << report.error().message();
  if (!report->skipped.empty()) GTEST_SKIP() << report->skipped[0].reason;
  EXPECT_TRUE(report->drives[0].own_file);
  EXPECT_FALSE(seen_during_reads);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DriveProbeTest, RefusesATestFileThatDoesNotFitAndWritesNothing) {
  ProbeOptions options = Options();
  options.test_file_bytes = uint64_t{1} << 60;
  const Result<ProbeReport> report = ProbeDrives({{folder_, {}, {}}}, options, {}, {});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->skipped.size(), 1u);
  EXPECT_EQ(report->skipped[0].code, ErrorCode::kUnavailable);
  EXPECT_THAT(report->skipped[0].reason, HasSubstr("no space for a test file: expected "));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DriveProbeTest, RefusesFoldersThatMayNotBeWritten) {
  ProbeTarget read_only{folder_, {}, {}};
  read_only.drive.read_only = true;
  ProbeTarget missing{folder_ + "/missing", {}, {}};
  missing.drive.identity = "sim:missing";
  ProbeOptions options = Options();
  options.test_file_bytes = kLeastOwnBytes;
  const Result<ProbeReport> report = ProbeDrives({read_only, missing}, options, {}, {});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->skipped.size(), 2u);
  EXPECT_THAT(report->skipped[0].reason, HasSubstr("mounted read-only"));
  EXPECT_EQ(report->skipped[1].code, ErrorCode::kNotFound);
}

TEST_F(DriveProbeTest, RefusesOptionsThatMakeNoSense) {
  ProbeOptions options = Options();
  options.seconds = 0;
  EXPECT_EQ(ProbeDrives({}, options, {}, {}).error().code(), ErrorCode::kInvalidArgument);
  options = Options();
  options.test_file_bytes = 5;
  EXPECT_EQ(ProbeDrives({}, options, {}, {}).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafin
