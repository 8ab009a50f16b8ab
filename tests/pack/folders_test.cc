// Which folders pack, rebalance and verify take: alone in them, of one set, on drives that are there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <optional>

#include "checkpoint/expert_set_folders.h"
#include "checkpoint/hex.h"
#include "pack/folder_locks.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PackFolders : public testing::Test {
 protected:
  void ExpectPacked(const PackOptions& options) {
    const Result<PackReport> report = Pack(options, {}, {});
    ASSERT_TRUE(report) << report.error().message();
  }
  static void ExpectError(const Result<PackReport>& report, ErrorCode code,
                          const ::testing::Matcher<std::string>& says) {
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), code) << report.error().message();
    EXPECT_THAT(report.error().message(), says);
  }
  uint64_t SetId(const std::vector<std::string>& folders) const {
    const Result<FoundSets> found = FindSets(folders);
    EXPECT_TRUE(found);
    return found ? found->candidates[0].manifest.set_id : 0;
  }
  // Without the shards of `late`.
  void PackWithout(int late, const std::vector<std::string>& folders) {
    fs::rename(c_.shard(late), c_.root() + "/late");
    ExpectPacked(c_.Options(folders));
    fs::rename(c_.root() + "/late", c_.shard(late));
  }
  // Stops after about `changes` changes on drives.
  template <typename Work>
  static void Stop(PackOptions options, int changes, const Work& work) {
    std::atomic<int> done{0};
    options.hook = [&](DiskStep, const std::string& path) -> Status {
      return ++done > changes ? Fail(ErrorCode::kIo, "broken: ", path) : Status();
    };
    EXPECT_FALSE(work(options));
  }

  PackCase c_;
};

TEST_F(PackFolders, OfTwoPacksAtTheSameInstantOneIsRefused) {
  PackOptions options = c_.Options(c_.drives(2));
  std::optional<Result<PackReport>> second;
  options.hook = [&](DiskStep, const std::string&) -> Status {
    if (second) return {};
    EXPECT_FALSE(fs::exists(c_.drive(0) + "/" + kJournalName)) << "neither of them has begun";
    second = Fail(ErrorCode::kInternal, "not run");
    second = Pack(c_.Options({c_.drive(1), c_.drive(2)}), {}, {});
    return {};
  };
  ExpectPacked(options);
  ASSERT_TRUE(second);
  ExpectError(*second, ErrorCode::kUnavailable, AllOf(HasSubstr(c_.drive(1)), HasSubstr("wait for it")));
  EXPECT_EQ(c_.InSet(c_.drives(2)), c_.originals());
}

TEST_F(PackFolders, ShardsAreNotMovedWhileAnotherPackReadsThem) {
  PackOptions options = c_.Options(c_.drives(2));
  std::atomic<bool> asked{false};  // hooks run on the writers' threads
  options.hook = [&](DiskStep, const std::string&) -> Status {
    if (asked.exchange(true)) return {};
    PackOptions other = c_.Options({c_.drive(2)});
    EXPECT_TRUE(Pack(other, {}, {})) << "both only read";
    other = c_.Options({c_.drive(3)});
    other.move = true;
    ExpectError(Pack(other, {}, {}), ErrorCode::kUnavailable, HasSubstr(c_.model()));
    return {};
  };
  ExpectPacked(options);
  EXPECT_EQ(c_.InShards(), c_.originals());
}

TEST_F(PackFolders, AreNotRepairedWhileAPackWritesThem) {
  ExpectPacked(c_.Options(c_.drives(2)));
  std::atomic<bool> asked{false};  // hooks run on the writers' threads
  PackOptions options = c_.Options(c_.drives(2));
  options.replica_bytes = 12 * kPackPage;
  options.hook = [&](DiskStep, const std::string&) -> Status {
    if (asked.exchange(true)) return {};
    VerifyOptions verify;
    verify.model = c_.model();
    verify.experts = c_.drives(2);
    verify.io = "pread";
    EXPECT_TRUE(Verify(verify, [](const BadRecord&) {}, {}, {}));
    verify.repair = true;
    const Result<VerifyReport> report = Verify(verify, [](const BadRecord&) {}, {}, {});
    EXPECT_FALSE(report);
    if (!report) {
      EXPECT_EQ(report.error().code(), ErrorCode::kUnavailable);
    }
    return {};
  };
  ExpectPacked(options);
}

TEST_F(PackFolders, LocksKnowAFolderUnderAnyName) {
  fs::create_directories(c_.drive(0));
  fs::create_directory_symlink(c_.drive(0), c_.root() + "/link");
  FolderLocks ours;
  EXPECT_TRUE(ours.Take({c_.drive(0)}, FolderLocks::Kind::kReads));
  EXPECT_TRUE(ours.Take({c_.root() + "/link", c_.drive(0) + "/", c_.root() + "/nowhere"}, FolderLocks::Kind::kWrites));
  FolderLocks others;
  EXPECT_FALSE(others.Take({c_.root() + "/link"}, FolderLocks::Kind::kReads));
}

TEST_F(PackFolders, OfDifferentSetsHaveDifferentNamesAndTheSameCommandGivesTheSame) {
  PackWithout(3, c_.drives(2));
  const uint64_t first = SetId(c_.drives(2));
  c_.Reset();
  PackWithout(4, c_.drives(2));
  EXPECT_NE(SetId(c_.drives(2)), first) << "other experts";
  PackWithout(3, {c_.drive(2), c_.drive(3)});
  EXPECT_NE(SetId({c_.drive(2), c_.drive(3)}), first) << "other folders";
  c_.Reset();
  PackWithout(3, c_.drives(2));
  EXPECT_EQ(SetId(c_.drives(2)), first);
}

// A set and its copy that were extended with different shards: one id, one generation, the same file names.
TEST_F(PackFolders, OfTwoSetsWithOneNameAreNeverMendedFromEachOther) {
  fs::rename(c_.shard(4), c_.root() + "/later");
  PackWithout(3, c_.drives(2));
  for (const int drive : {0, 1}) fs::copy(c_.drive(drive), c_.drive(drive + 2), fs::copy_options::recursive);
  ExpectPacked(c_.Options(c_.drives(2)));
  fs::rename(c_.root() + "/later", c_.shard(4));
  PackWithout(3, {c_.drive(2), c_.drive(3)});
  const std::vector<std::string> mixed = {c_.drive(0), c_.drive(3)};
  ASSERT_EQ(SetId(c_.drives(2)), SetId({c_.drive(2), c_.drive(3)}));
  FileContents before = c_.Files();
  VerifyOptions options;
  options.model = c_.model();
  options.experts = mixed;
  options.io = "pread";
  options.repair = true;
  const Result<VerifyReport> report = Verify(options, [](const BadRecord&) {}, {}, {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), AllOf(HasSubstr(c_.drive(0)), HasSubstr(c_.drive(3)), HasSubstr("one set")));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  // Without its manifest the folder looks the same but for its index.
  fs::remove(c_.drive(3) + "/deltafin-experts-g2.json");
  before = c_.Files();
  const std::vector<BadRecord> bad = VerifyAll(c_, mixed, true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0].what, HasSubstr("drive 1"));
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(PackFolders, OnlyTheLastPartOfAPathIsMade) {
  const std::string deep = c_.root() + "/not-mounted/k3/experts";
  ExpectError(Pack(c_.Options({c_.drive(0), deep}), {}, {}), ErrorCode::kIo,
              AllOf(HasSubstr("expected a folder " + c_.root() + "/not-mounted to"), HasSubstr("mounted?")));
  EXPECT_FALSE(fs::exists(c_.root() + "/not-mounted"));
  EXPECT_FALSE(fs::exists(c_.drive(0))) << "nothing is made when one of them cannot be";
  WriteFileBytes(c_.root() + "/file", "x");
  for (const std::string name : {"/file", "/file/experts"})
    ExpectError(Pack(c_.Options({c_.root() + name}), {}, {}), ErrorCode::kInvalidArgument,
                AllOf(HasSubstr("expected a folder"), HasSubstr("got a file")));
}

TEST_F(PackFolders, ADriveThatIsNotMountedWhenAPackGoesOnIsMissed) {
  Stop(c_.Options(c_.drives(2)), 40, [](const PackOptions& o) { return Pack(o, {}, {}); });
  const std::string piece = c_.drive(1) + "/experts-g1-t3-1.bin";
  ASSERT_GT(fs::file_size(piece), 0u);
  fs::rename(c_.drive(1), c_.root() + "/away");
  fs::create_directories(c_.drive(1));
  const FileContents before = c_.Files();
  ExpectError(Pack(c_.Options(c_.drives(2)), {}, {}), ErrorCode::kIo, AllOf(HasSubstr(piece), HasSubstr("mounted?")));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  fs::remove(c_.drive(1));
  fs::rename(c_.root() + "/away", c_.drive(1));
  const std::string bytes = ReadFileBytes(piece);
  fs::resize_file(piece, kPackPage);
  ExpectError(Pack(c_.Options(c_.drives(2)), {}, {}), ErrorCode::kCorrupt, AllOf(HasSubstr(piece), HasSubstr("4096")));
  WriteFileBytes(piece, bytes);
  ExpectPacked(c_.Options(c_.drives(2)));
  EXPECT_EQ(c_.InSet(c_.drives(2)), c_.originals());
}

TEST_F(PackFolders, ADamagedOrStaleOrEmptyOneIsNamedWithItsReason) {
  PackWithout(3, c_.drives(2));
  fs::copy(c_.drive(1), c_.root() + "/stale", fs::copy_options::recursive);
  ExpectPacked(c_.Options(c_.drives(2)));
  fs::copy(c_.drive(1), c_.root() + "/good", fs::copy_options::recursive);
  const auto expect = [&](ErrorCode code, const char* why) {
    SCOPED_TRACE(why);
    const FileContents before = c_.Files();
    ExpectError(Pack(c_.Options(c_.drives(2)), {}, {}), code,
                AllOf(HasSubstr("drive 1 ('drive1')"), HasSubstr(c_.drive(1)), HasSubstr(why),
                      Not(HasSubstr("folders are given"))));
    if (code == ErrorCode::kCorrupt) {
      ExpectError(Rebalance(c_.Options(c_.drives(3)), c_.drives(2), {}, {}), code,
                  AllOf(HasSubstr(c_.drive(1) + ": expected an empty folder"), HasSubstr(why)));
    }
    EXPECT_EQ(Difference(before, c_.Files()), "");
  };
  fs::resize_file(c_.drive(1) + "/deltafin-experts-g2.json", 100);
  expect(ErrorCode::kCorrupt, "torn");
  fs::remove_all(c_.drive(1));
  fs::rename(c_.root() + "/stale", c_.drive(1));
  expect(ErrorCode::kCorrupt, "holds only generation 1");
  fs::remove_all(c_.drive(1));
  fs::create_directories(c_.drive(1));
  expect(ErrorCode::kIo, "mounted?");
  fs::remove_all(c_.drive(1));
  fs::rename(c_.root() + "/good", c_.drive(1));
  ExpectPacked(c_.Options(c_.drives(2)));
}

TEST_F(PackFolders, OfAnotherModelAreBadDataAndStayAsTheyAre) {
  ExpectPacked(c_.Options(c_.drives(2)));
  c_.MakeAnotherModel();
  const FileContents before = c_.Files();
  ExpectError(Pack(c_.Options(c_.drives(2)), {}, {}), ErrorCode::kCorrupt, HasSubstr("of model"));
  ExpectError(Rebalance(c_.Options(c_.drives(3)), c_.drives(2), {}, {}), ErrorCode::kCorrupt,
              AllOf(HasSubstr(c_.model()), HasSubstr("expected model"), HasSubstr("nothing was changed")));
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(PackFolders, FewerSecondCopiesThanThereAreAreRefused) {
  PackOptions options = c_.Options(c_.drives(2));
  options.replica_bytes = 5 * 12 * kPackPage;
  ExpectPacked(options);
  const FileContents before = c_.Files();
  options.replica_bytes = 4 * 12 * kPackPage;
  ExpectError(Pack(options, {}, {}), ErrorCode::kInvalidArgument,
              AllOf(HasSubstr("--replicas"), HasSubstr(std::to_string(5 * 12 * kPackPage))));
  ExpectPacked(c_.Options(c_.drives(2)));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  c_.Reset();
  options.replica_bytes = 12 * kPackPage - 1;
  ExpectError(Pack(options, {}, {}), ErrorCode::kInvalidArgument,
              AllOf(HasSubstr("--replicas"), HasSubstr("one expert"), HasSubstr(std::to_string(12 * kPackPage))));
}

// The journal of a rebalance is on the first of its new drives.
TEST_F(PackFolders, ARebalanceWhoseJournalsDriveIsGoneSaysSo) {
  ExpectPacked(c_.Options(c_.drives(2)));
  const std::vector<std::string> to = {c_.drive(2), c_.drive(1), c_.drive(3)};
  const auto rebalance = [&](const PackOptions& o) { return Rebalance(o, c_.drives(2), {}, {}); };
  Stop(c_.Options(to), 40, rebalance);
  fs::rename(c_.drive(2), c_.root() + "/away");
  ExpectError(rebalance(c_.Options(to)), ErrorCode::kIo,
              AllOf(HasSubstr(c_.drive(3) + "/experts-g2-"), HasSubstr(kJournalName), HasSubstr("mounted?"),
                    Not(HasSubstr("in the way"))));
  fs::remove_all(c_.drive(2));
  fs::rename(c_.root() + "/away", c_.drive(2));
  const Result<PackReport> report = rebalance(c_.Options(to));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(c_.InSet(to), c_.originals());
}

TEST_F(PackFolders, ARebalanceThatGoesOnWithoutADriveNamesThatDrive) {
  ExpectPacked(c_.Options(c_.drives(2)));
  const std::vector<std::string> to = {c_.drive(2), c_.drive(1), c_.drive(3)};
  const auto rebalance = [&](const PackOptions& o) { return Rebalance(o, c_.drives(2), {}, {}); };
  Stop(c_.Options(to), 40, rebalance);
  // A drive that keeps pieces.
  fs::rename(c_.drive(1), c_.root() + "/away");
  ExpectError(rebalance(c_.Options(to)), ErrorCode::kIo,
              AllOf(HasSubstr(c_.drive(1) + "/experts-g1-t3-1.bin"), HasSubstr("mounted?")));
  fs::remove_all(c_.drive(1));
  fs::rename(c_.root() + "/away", c_.drive(1));
  // One that is only read, without another source.
  fs::rename(c_.drive(0), c_.root() + "/away");
  for (const int number : {2, 3, 4}) fs::rename(c_.shard(number), c_.root() + "/shard" + std::to_string(number));
  std::vector<std::string> notes;
  PackOptions options = c_.Options(to);
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  ExpectError(rebalance(options), ErrorCode::kCorrupt,
              AllOf(HasSubstr("drive 0 ('drive0')"), HasSubstr("is not there"), HasSubstr(c_.drive(0))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("drive 0 ('drive0')"), HasSubstr(c_.drive(0)))));
  for (const int number : {2, 3, 4}) fs::rename(c_.root() + "/shard" + std::to_string(number), c_.shard(number));
  const Result<PackReport> report = rebalance(c_.Options(to));
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(c_.InSet(to), c_.originals());
}

}  // namespace
}  // namespace deltafin::test
