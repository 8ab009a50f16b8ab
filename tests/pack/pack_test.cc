// What pack promises about undisturbed runs: the set holds exactly the shards' bytes, however it is cut.
#include "pack/pack.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "checkpoint/expert_set.h"
#include "pack/journal.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

Result<PackReport> PackInto(const PackOptions& options) { return Pack(options, {}, {}); }

#define ASSERT_PACKED(result) ASSERT_TRUE(result) << ((result) ? "" : (result).error().message())

struct Layout {
  int drives;
  bool compact;
  uint64_t replica_bytes;
};

class PackLayouts : public testing::TestWithParam<Layout> {};

TEST_P(PackLayouts, TheSetHoldsTheBytesOfTheShards) {
  PackCase c;
  c.SpoilScales({1, 3}, 0);
  c.SpoilScales({2, 5}, 1);
  c.SpoilScales({2, 5}, 2);
  const auto [drives, compact, replica_bytes] = GetParam();
  PackOptions options = c.Options(c.drives(drives), {13.6e9, 7.1e9, 7.1e9, 5.4e9, 3e9});
  options.compact = compact;
  options.replica_bytes = replica_bytes;
  const Result<PackReport> report = PackInto(options);
  ASSERT_PACKED(report);
  EXPECT_EQ(report->records, kPackRecords);
  EXPECT_EQ(report->records_missing, 0u);
  EXPECT_EQ(report->matrices_whole, compact ? 3u : 0u);
  EXPECT_EQ(report->replica_records, replica_bytes / (compact ? 11 * kPackPage : 12 * kPackPage));
  EXPECT_EQ(c.InSet(c.drives(drives)), c.originals());
  EXPECT_EQ(c.InShards(), c.originals());
  EXPECT_FALSE(fs::exists(c.drive(0) + "/" + kJournalName));
  EXPECT_TRUE(VerifyAll(c, c.drives(drives)).empty());
}

INSTANTIATE_TEST_SUITE_P(All, PackLayouts,
                         testing::Values(Layout{1, false, 0}, Layout{2, false, 0}, Layout{3, false, 0},
                                         Layout{5, false, 0}, Layout{1, true, 0}, Layout{2, true, 0},
                                         Layout{3, true, 0}, Layout{5, true, 0}, Layout{2, false, 10 * 12 * kPackPage},
                                         Layout{3, false, 36 * 12 * kPackPage},
                                         Layout{5, false, 7 * 12 * kPackPage + 1}, Layout{3, true, 9 * 11 * kPackPage}),
                         [](const auto& info) {
                           return std::to_string(info.param.drives) + (info.param.compact ? "compact" : "plain") +
                                  std::to_string(info.param.replica_bytes / kPackPage);
                         });

TEST(Pack, SharesFollowTheRatesAndAreEqualWhenOneIsUnknown) {
  PackCase c;
  ASSERT_PACKED(PackInto(c.Options(c.drives(2), {3e9, 1e9})));
  uint64_t first = 0;
  for (const auto& entry : fs::directory_iterator(c.drive(0)))
    if (entry.path().extension() == ".bin") first += entry.file_size();
  EXPECT_EQ(first, kPackRecords * 9 * kPackPage);
  c.Reset();
  const Result<PackReport> report = PackInto(c.Options(c.drives(2), {3e9}));
  ASSERT_PACKED(report);
  first = 0;
  for (const auto& entry : fs::directory_iterator(c.drive(0)))
    if (entry.path().extension() == ".bin") first += entry.file_size();
  EXPECT_EQ(first, kPackRecords * 6 * kPackPage);
  EXPECT_TRUE(std::any_of(report->notes.begin(), report->notes.end(),
                          [](const std::string& n) { return n.find("equal shares") != std::string::npos; }));
}

TEST(Pack, FoldersOnOneDeviceAreTold) {
  PackCase c;
  const Result<PackReport> report = PackInto(c.Options(c.drives(2)));
  ASSERT_PACKED(report);
  EXPECT_TRUE(std::any_of(report->notes.begin(), report->notes.end(), [&](const std::string& n) {
    return n.find("on one device") != std::string::npos && n.find(c.drive(1)) != std::string::npos;
  }));
}

TEST(Pack, LeavesAFileThatNamesTheFolders) {
  PackCase c;
  const Result<PackReport> report = PackInto(c.Options(c.drives(2)));
  ASSERT_PACKED(report);
  EXPECT_EQ(report->pointer_file, c.model() + "/deltafin-experts.json");
  EXPECT_EQ(*FindExpertFolders(c.model(), ""), c.drives(2));
}

TEST(Pack, AgainWithNothingNewChangesNothing) {
  PackCase c;
  ASSERT_PACKED(PackInto(c.Options(c.drives(3))));
  const FileContents before = c.Files();
  const Result<PackReport> report = PackInto(c.Options(c.drives(3)));
  ASSERT_PACKED(report);
  EXPECT_EQ(report->bytes_written, 0u);
  EXPECT_EQ(report->generation, 1u);
  EXPECT_EQ(Difference(before, c.Files()), "");
}

TEST(Pack, APartialDownloadIsExtendedWhenTheRestArrives) {
  PackCase c;
  fs::rename(c.shard(3), c.root() + "/late");
  Result<PackReport> report = PackInto(c.Options(c.drives(2)));
  ASSERT_PACKED(report);
  EXPECT_EQ(report->records, 2u * kPackExperts);
  EXPECT_EQ(report->records_missing, 1u * kPackExperts);
  const std::string before = ReadFileBytes(c.drive(0) + "/experts-g1-t3-0.bin");
  fs::rename(c.root() + "/late", c.shard(3));
  // In another order than the set's: it has one of its own.
  report = PackInto(c.Options({c.drive(1), c.drive(0)}));
  ASSERT_PACKED(report);
  EXPECT_EQ(report->generation, 2u);
  EXPECT_EQ(report->records_missing, 0u);
  EXPECT_EQ(report->bytes_written, kPackExperts * 12 * kPackPage);
  EXPECT_EQ(c.InSet(c.drives(2)), c.originals());
  EXPECT_EQ(ReadFileBytes(c.drive(0) + "/experts-g1-t3-0.bin").substr(0, before.size()), before);
  EXPECT_FALSE(fs::exists(c.drive(0) + "/deltafin-experts-g1.json"));
  EXPECT_TRUE(VerifyAll(c, c.drives(2)).empty());
}

TEST(Pack, SecondCopiesCanBeAddedLaterAndGoToTheMostUsed) {
  PackCase c;
  ASSERT_PACKED(PackInto(c.Options(c.drives(3))));
  PackOptions options = c.Options(c.drives(3));
  options.replica_bytes = 3 * 12 * kPackPage;
  options.usage.assign(kPackRecords, 1);
  options.usage[7] = options.usage[20] = options.usage[33] = 100;
  const Result<PackReport> report = PackInto(options);
  ASSERT_PACKED(report);
  EXPECT_EQ(report->replica_records, 3u);
  const Result<ExpertSet> set = ExpertSet::Open(c.drives(3), c.spec());
  ASSERT_TRUE(set);
  for (int p = 0; p < kPackRecords; ++p)
    EXPECT_EQ(set->HasCopy({1 + p / kPackExperts, p % kPackExperts}), p == 7 || p == 20 || p == 33) << p;
}

TEST(Pack, WithAllCopiesAnyDriveMayBeMissing) {
  PackCase c;
  PackOptions options = c.Options(c.drives(3), {2e9, 1e9, 1e9});
  options.replica_bytes = kPackRecords * 12 * kPackPage;
  ASSERT_PACKED(PackInto(options));
  EXPECT_EQ(c.InSet({c.drive(0), c.drive(1)}), c.originals());
  EXPECT_EQ(c.InSet({c.drive(1), c.drive(2)}), c.originals());
  EXPECT_EQ(c.InSet({c.drive(0), c.drive(2)}), c.originals());
}

TEST(PackRefuses, SecondCopiesOnOneDrive) {
  PackCase c;
  PackOptions options = c.Options(c.drives(1));
  options.replica_bytes = 1 << 20;
  EXPECT_EQ(PackInto(options).error().code(), ErrorCode::kInvalidArgument);
}

TEST(PackRefuses, AFolderTwice) {
  PackCase c;
  const Result<PackReport> report = PackInto(c.Options({c.drive(0), c.drive(0) + "/../drive0"}));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kInvalidArgument);
}

TEST(PackRefuses, AForeignFileInTheWayAndLeavesItAlone) {
  PackCase c;
  fs::create_directories(c.drive(1));
  WriteFileBytes(c.drive(1) + "/experts-g1-t3-1.bin", "mine");
  const FileContents before = c.Files();
  const Result<PackReport> report = PackInto(c.Options(c.drives(2)));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(report.error().message().find(c.drive(1) + "/experts-g1-t3-1.bin"), std::string::npos);
  EXPECT_EQ(report.error().message().find("remove"), std::string::npos) << "it may be the only copy of experts";
  EXPECT_EQ(Difference(before, c.Files()), "");
}

TEST(PackRefuses, OtherFoldersThanTheSetHas) {
  PackCase c;
  ASSERT_PACKED(PackInto(c.Options(c.drives(2))));
  for (const int count : {1, 3}) {
    const Result<PackReport> report = PackInto(c.Options(c.drives(count)));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(report.error().message().find("--rebalance"), std::string::npos) << report.error().message();
  }
}

TEST(PackRefuses, AScaleOf255NamingExpertAndFile) {
  PackCase c;
  std::string bytes = ReadFileBytes(c.shard(3));
  const size_t at = bytes.find("experts.4.w2.weight_scale");
  ASSERT_NE(at, std::string::npos);
  // The offsets of that tensor, from the header's text.
  const size_t offsets = bytes.find("data_offsets\":[", at) + 15;
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  bytes[8 + length + std::stoull(bytes.substr(offsets, 20)) + 5] = static_cast<char>(0xff);
  WriteFileBytes(c.shard(3), bytes);
  const Result<PackReport> report = PackInto(c.Options(c.drives(2)));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(report.error().message().find("layer 2, expert 4, w2.weight_scale, row 1"), std::string::npos)
      << report.error().message();
  EXPECT_NE(report.error().message().find(c.shard(3)), std::string::npos);
}

TEST(PackRefuses, AnUnfinishedPackWithOtherOptionsAndSaysWhichDiffer) {
  PackCase c;
  PackOptions options = c.Options(c.drives(2));
  std::atomic<int> steps{0};
  options.hook = [&](DiskStep, const std::string& path) -> Status {
    return ++steps > 8 ? Fail(ErrorCode::kIo, "broken: ", path) : Status();
  };
  ASSERT_FALSE(PackInto(options));
  ASSERT_TRUE(fs::exists(c.drive(0) + "/" + kJournalName));
  PackOptions other = c.Options({c.drive(1), c.drive(0)});
  Result<PackReport> report = PackInto(other);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("to was"), std::string::npos) << report.error().message();
  other = c.Options(c.drives(2));
  other.compact = true;
  report = PackInto(other);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("compact_scales was false, is now true"), std::string::npos);
  EXPECT_NE(report.error().message().find("start over"), std::string::npos);
  ASSERT_PACKED(PackInto(c.Options(c.drives(2))));
  EXPECT_EQ(c.InSet(c.drives(2)), c.originals());
}

TEST(PackStops, WhenCancelledAndGoesOnLater) {
  PackCase c;
  CancelSource cancel;
  PackOptions options = c.Options(c.drives(2));
  const auto progress = [&](const PackProgress& p) {
    if (p.records_done >= 10) cancel.Cancel();
  };
  const Result<PackReport> stopped = Pack(options, progress, cancel.token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), ErrorCode::kCancelled);
  PackProgress first;
  const Result<PackReport> report = Pack(options,
                                         [&](const PackProgress& p) {
                                           if (first.records_total == 0) first = p;
                                         },
                                         {});
  ASSERT_PACKED(report);
  EXPECT_GE(first.bytes_resumed, 10u * 12 * kPackPage);
  EXPECT_LT(report->bytes_written, 30u * 12 * kPackPage);
  EXPECT_EQ(c.InSet(c.drives(2)), c.originals());
}

TEST(PackStops, WhenADriveIsFullAndGoesOnLater) {
  PackCase c;
  PackOptions options = c.Options(c.drives(2));
  std::atomic<int> writes{0};
  options.hook = [&](DiskStep step, const std::string& path) -> Status {
    if (step == DiskStep::kWrite && path.starts_with(c.drive(1)) && ++writes > 20)
      return DiskFailure("writing", path, ENOSPC);
    return {};
  };
  const Result<PackReport> full = PackInto(options);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(full.error().message().find(c.drive(1)), std::string::npos);
  options.hook = {};
  ASSERT_PACKED(PackInto(options));
  EXPECT_EQ(c.InSet(c.drives(2)), c.originals());
}

}  // namespace
}  // namespace deltafin::test
