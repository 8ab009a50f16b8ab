// What --rebalance promises: the same experts on other drives, nothing moved that may stay, nothing left behind.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/expert_cut.h"
#include "pack/pack.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

class RebalanceTest : public testing::Test {
 protected:
  void PackOn(const std::vector<std::string>& folders, const std::vector<double>& rates, uint64_t copies = 0,
              bool compact = false) {
    PackOptions options = c_.Options(folders, rates);
    options.replica_bytes = copies * 12 * kPackPage;
    options.compact = compact;
    const Result<PackReport> report = Pack(options, {}, {});
    ASSERT_TRUE(report) << report.error().message();
  }
  Result<PackReport> To(const std::vector<std::string>& folders, const std::vector<double>& rates,
                        const std::vector<std::string>& from) {
    return Rebalance(c_.Options(folders, rates), from, {}, {});
  }
  void ExpectSound(const std::vector<std::string>& folders) {
    EXPECT_EQ(c_.InSet(folders), c_.originals());
    for (const BadRecord& bad : VerifyAll(c_, folders)) ADD_FAILURE() << bad.file << ": " << bad.what;
  }
  static size_t FilesIn(const std::string& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  PackCase c_;
};

TEST_F(RebalanceTest, ANewDriveTakesItsShareAndNothingElseMoves) {
  PackOn(c_.drives(2), {1e9, 1e9});
  const Result<PackReport> report = To(c_.drives(3), {1e9, 1e9, 1e9}, c_.drives(2));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->bytes_written, kPackRecords * 4 * kPackPage);
  EXPECT_EQ(report->generation, 2u);
  ExpectSound(c_.drives(3));
  EXPECT_EQ(FilesIn(c_.drive(0)), 3u);  // pieces, manifest, index
}

TEST_F(RebalanceTest, VacatedRoomIsGivenBack) {
  PackOn(c_.drives(1), {1e9});
  ASSERT_TRUE(To(c_.drives(2), {1e9, 1e9}, c_.drives(1)));
  const std::string bytes = ReadFileBytes(c_.drive(0) + "/experts-g1-t3-0.bin");
  for (uint64_t slot = 0; slot < kPackRecords; ++slot)
    EXPECT_EQ(bytes.substr((slot * 12 + 6) * kPackPage, 6 * kPackPage), std::string(6 * kPackPage, '\0')) << slot;
  ExpectSound(c_.drives(2));
}

TEST_F(RebalanceTest, ADroppedDriveIsEmptied) {
  PackOn(c_.drives(3), {1e9, 1e9, 1e9}, 5);
  WriteFileBytes(c_.drive(2) + "/mine.txt", "stays");
  const Result<PackReport> report = To(c_.drives(2), {1e9, 1e9}, c_.drives(3));
  ASSERT_TRUE(report) << report.error().message();
  ExpectSound(c_.drives(2));
  EXPECT_EQ(FilesIn(c_.drive(2)), 1u);
  EXPECT_EQ(report->replica_records, 5u);
}

TEST_F(RebalanceTest, BackAndForthManyTimes) {
  PackOn(c_.drives(2), {3e9, 2e9}, 6, true);
  const std::vector<std::vector<std::string>> steps = {
      c_.drives(3), {c_.drive(2), c_.drive(4)}, c_.drives(5), {c_.drive(1)}, {c_.drive(1), c_.drive(0)}};
  std::vector<std::string> from = c_.drives(2);
  for (const std::vector<std::string>& to : steps) {
    const Result<PackReport> report = To(to, {1e9, 2e9, 3e9, 1e9, 5e9}, from);
    ASSERT_TRUE(report) << report.error().message();
    ExpectSound(to);
    from = to;
  }
  EXPECT_FALSE(fs::exists(c_.drive(3) + "/deltafin-experts-g4.json"));
}

TEST_F(RebalanceTest, ARebalancedSetCanBeExtended) {
  fs::rename(c_.shard(3), c_.root() + "/late");
  PackOn(c_.drives(1), {1e9});
  ASSERT_TRUE(To(c_.drives(3), {1e9, 2e9, 3e9}, c_.drives(1)));
  fs::rename(c_.root() + "/late", c_.shard(3));
  PackOn(c_.drives(3), {}, 4);
  ExpectSound(c_.drives(3));
}

TEST_F(RebalanceTest, NothingToMoveIsSaid) {
  PackOn(c_.drives(2), {1e9, 1e9});
  const FileContents before = c_.Files();
  const Result<PackReport> report = To(c_.drives(2), {1e9, 1e9}, c_.drives(2));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->bytes_written, 0u);
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(RebalanceTest, TheSameCommandAgainChangesNothing) {
  PackOn(c_.drives(2), {1e9, 1e9});
  const std::vector<std::string> to = {c_.drive(1), c_.drive(2), c_.drive(3)};
  ASSERT_TRUE(To(to, {1e9, 1e9, 1e9}, c_.drives(2)));
  const FileContents before = c_.Files();
  const Result<PackReport> again = To(to, {1e9, 1e9, 1e9}, c_.drives(2));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->bytes_written, 0u);
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(RebalanceTest, ADriveThatIsGoneIsMadeAgainFromTheShards) {
  PackOn(c_.drives(3), {1e9, 1e9, 1e9});
  fs::remove_all(c_.drive(1));
  const Result<PackReport> report = To({c_.drive(0), c_.drive(2)}, {1e9, 1e9}, c_.drives(3));
  ASSERT_TRUE(report) << report.error().message();
  ExpectSound({c_.drive(0), c_.drive(2)});
}

TEST_F(RebalanceTest, ADriveThatIsGoneIsMadeAgainFromSecondCopies) {
  PackOn(c_.drives(3), {1e9, 1e9, 1e9}, kPackRecords);
  for (const int number : {2, 3, 4}) fs::remove(c_.shard(number));
  fs::remove_all(c_.drive(1));
  const Result<PackReport> report = To({c_.drive(0), c_.drive(2)}, {1e9, 1e9}, c_.drives(3));
  ASSERT_TRUE(report) << report.error().message();
  ExpectSound({c_.drive(0), c_.drive(2)});
}

TEST_F(RebalanceTest, ADriveThatIsGoneWithoutAnySourceIsAnErrorAndTheRestStays) {
  PackOn(c_.drives(3), {1e9, 1e9, 1e9});
  for (const int number : {2, 3, 4}) fs::remove(c_.shard(number));
  fs::remove_all(c_.drive(1));
  const std::string piece = ReadFileBytes(c_.drive(0) + "/experts-g1-t3-0.bin");
  const Result<PackReport> report = To({c_.drive(0), c_.drive(2)}, {1e9, 1e9}, c_.drives(3));
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("no sound source"), std::string::npos) << report.error().message();
  EXPECT_EQ(ReadFileBytes(c_.drive(0) + "/experts-g1-t3-0.bin"), piece);
  EXPECT_TRUE(fs::exists(c_.drive(0) + "/deltafin-experts-g1.json"));
}

TEST_F(RebalanceTest, DamageIsNotCopiedButTakenFromASoundSource) {
  PackOn(c_.drives(2), {1e9, 1e9});
  FlipByte(c_.drive(1) + "/experts-g1-t3-1.bin", 6 * kPackPage * 4 + 5 * kPackPage + 77);
  const Result<PackReport> report = To(c_.drives(3), {1e9, 1e9, 1e9}, c_.drives(2));
  ASSERT_TRUE(report) << report.error().message();
  ExpectSound(c_.drives(3));
}

TEST_F(RebalanceTest, RefusesAFolderThatHoldsSomethingElse) {
  PackOn(c_.drives(2), {1e9, 1e9});
  fs::create_directories(c_.drive(2));
  WriteFileBytes(c_.drive(2) + "/experts-g7-t3-0.bin", "mine");
  const Result<PackReport> report = To(c_.drives(3), {1e9, 1e9, 1e9}, c_.drives(2));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ReadFileBytes(c_.drive(2) + "/experts-g7-t3-0.bin"), "mine");
}

}  // namespace
}  // namespace deltafin::test
