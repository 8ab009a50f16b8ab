// Experts that `pack --move` took out of shards are only in the set that they went to: no later call may lose sight of
// them, whatever happened to the journal, whichever folders it is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/expert_set_folders.h"
#include "checkpoint/hex.h"
#include "checkpoint/shard_file.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MovedExperts : public testing::Test {
 protected:
  std::string Journal() const { return c_.drive(0) + "/" + kJournalName; }
  // The set that a shard's note names.
  std::string SetOf(int shard) const {
    const Result<ShardHeader> header = ReadShardHeader(c_.shard(shard));
    EXPECT_TRUE(header);
    return header ? std::string(header->header.metadata(kExpertsMovedTo)) : "";
  }
  void ExpectRefused(const Result<PackReport>& report, const ::testing::Matcher<std::string>& says) {
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), ErrorCode::kCorrupt) << report.error().message();
    EXPECT_THAT(report.error().message(), AllOf(says, HasSubstr("Nothing was changed")));
  }
  void ExpectGoesOn() {
    const Result<PackReport> report = Pack(c_.Options(c_.drives(2)), {}, {});
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(c_.InSet(c_.drives(2)), c_.originals());
  }
  // Shards 2 and 4 in a published set, shard 3's experts in an unfinished extension only.
  void InterruptExtension() {
    fs::rename(c_.shard(3), c_.root() + "/late");
    ASSERT_TRUE(Pack(c_.Options(c_.drives(2)), {}, {}));
    fs::rename(c_.root() + "/late", c_.shard(3));
    InterruptMove(c_.Options(c_.drives(2)), 2);
    ASSERT_FALSE(c_.InShards().contains({2, 0}));
  }

  PackCase c_;
};

TEST_F(MovedExperts, AnUnfinishedSetIsFinishedBeforeAnotherIsBegun) {
  InterruptMove(c_.Options(c_.drives(2)), 1);
  const FileContents before = c_.Files();
  ExpectRefused(Pack(c_.Options({c_.drive(2), c_.drive(3)}), {}, {}),
                AllOf(HasSubstr(c_.shard(2)), HasSubstr("expert set " + SetOf(2)), HasSubstr(c_.drive(0)),
                      HasSubstr("--to " + c_.drive(0) + " --to " + c_.drive(1))));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  ExpectGoesOn();
}

TEST_F(MovedExperts, TheNotedFoldersAreNamedWhenTheSetWasRebalancedSince) {
  fs::rename(c_.shard(3), c_.root() + "/late");
  PackOptions options = c_.Options(c_.drives(1));
  options.move = true;
  ASSERT_TRUE(Pack(options, {}, {}));
  ASSERT_TRUE(Rebalance(c_.Options({c_.drive(4)}), c_.drives(1), {}, {}));
  fs::rename(c_.root() + "/late", c_.shard(3));
  ExpectRefused(Pack(c_.Options({c_.drive(2)}), {}, {}), HasSubstr("--to " + c_.drive(4) + ";"));
}

TEST_F(MovedExperts, AJournalThatIsGoneIsMissed) {
  InterruptMove(c_.Options(c_.drives(2)), 1);
  const std::string journal = ReadFileBytes(Journal());
  fs::remove(Journal());
  const FileContents before = c_.Files();
  ExpectRefused(Pack(c_.Options(c_.drives(2)), {}, {}),
                AllOf(HasSubstr(Journal()), HasSubstr("all 12 experts"), HasSubstr("got none"), HasSubstr(SetOf(2)),
                      Not(HasSubstr("is in the way"))));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  WriteFileBytes(Journal(), journal);
  ExpectGoesOn();
}

TEST_F(MovedExperts, AJournalThatWasCutOffIsMissed) {
  InterruptMove(c_.Options(c_.drives(2)), 1);
  const std::string journal = ReadFileBytes(Journal());
  size_t size = 0, entries = 0;
  while (entries < 3) {
    const auto parsed = PackJournal::Parse(std::as_bytes(std::span(journal).first(++size)), "journal");
    entries = parsed && *parsed ? (*parsed)->entries.size() : 0;
  }
  WriteFileBytes(Journal(), journal.substr(0, size));
  const FileContents before = c_.Files();
  ExpectRefused(Pack(c_.Options(c_.drives(2)), {}, {}),
                AllOf(HasSubstr(Journal()), HasSubstr("all 12 experts"), HasSubstr("got 3:")));
  PackOptions other = c_.Options(c_.drives(2));
  other.compact = true;
  const Result<PackReport> refused = Pack(other, {}, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("do not remove"), Not(HasSubstr("start over"))));
  EXPECT_EQ(Difference(before, c_.Files()), "");
  WriteFileBytes(Journal(), journal);
  ExpectGoesOn();
}

TEST_F(MovedExperts, AnExtensionWhoseJournalIsGoneIsNeitherRepeatedNorMovedNorCutOff) {
  InterruptExtension();
  const std::string journal = ReadFileBytes(Journal());
  fs::remove(Journal());
  const FileContents before = c_.Files();
  const auto says = AllOf(HasSubstr(c_.drive(0) + "/deltafin-experts-g1.json"), HasSubstr(c_.shard(3)));
  ExpectRefused(Pack(c_.Options(c_.drives(2)), {}, {}), says);
  ExpectRefused(Rebalance(c_.Options({c_.drive(2), c_.drive(3)}), c_.drives(2), {}, {}), says);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2), true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].file, c_.shard(3));
  EXPECT_THAT(bad[0].what, HasSubstr("gave up 12 experts"));
  EXPECT_FALSE(bad[0].repaired);
  EXPECT_EQ(Difference(before, c_.Files()), "");
  WriteFileBytes(Journal(), journal);
  EXPECT_TRUE(VerifyAll(c_, c_.drives(2)).empty());
  ExpectGoesOn();
}

TEST_F(MovedExperts, AnotherSetThatHasThemIsNotRefused) {
  ASSERT_TRUE(Pack(c_.Options(c_.drives(2)), {}, {}));
  PackOptions other = c_.Options({c_.drive(2), c_.drive(3)});
  other.move = true;
  ASSERT_TRUE(Pack(other, {}, {}));
  ASSERT_TRUE(c_.InShards().empty());
  ExpectGoesOn();
}

TEST_F(MovedExperts, AShardThatHoldsOtherBytesThanTheSetIsNotEmptied) {
  ASSERT_TRUE(Pack(c_.Options(c_.drives(2)), {}, {}));
  FlipByte(c_.shard(3), fs::file_size(c_.shard(3)) / 2);
  const std::string replaced = ReadFileBytes(c_.shard(3));
  PackOptions options = c_.Options(c_.drives(2));
  options.move = true;
  const Result<PackReport> report = Pack(options, {}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(report.error().message(),
              AllOf(HasSubstr("layer 2, expert "), HasSubstr("model-00003"), HasSubstr("other bytes than")));
  EXPECT_EQ(ReadFileBytes(c_.shard(3)), replaced);
  EXPECT_EQ(c_.InSet(c_.drives(2)), c_.originals());
}

TEST_F(MovedExperts, NoShardIsEmptiedWhenTheJournalCannotBeWritten) {
  PackOptions options = c_.Options(c_.drives(2));
  options.move = true;
  std::atomic<int> writes{0};
  options.hook = [&](DiskStep step, const std::string& path) -> Status {
    if (step == DiskStep::kWrite && path == Journal() && ++writes == 2) return DiskFailure("writing", path, EIO);
    return {};
  };
  const Result<PackReport> report = Pack(options, {}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kIo);
  EXPECT_THAT(report.error().message(), HasSubstr(Journal()));
  EXPECT_EQ(writes, 2) << "after a failure nothing is appended";
  EXPECT_EQ(c_.InShards(), c_.originals());
  ExpectGoesOn();
}

}  // namespace
}  // namespace deltafin::test
