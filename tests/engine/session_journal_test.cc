// The journal of a session: what was appended is there, whatever happened to the end of the file.
#include "engine/session_journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr uint64_t kModel = 0x1234567890abcdef;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Journal : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/journal"; }
  SessionJournal Open() { return std::move(*SessionJournal::Open(Path(), kModel)); }
  // Two turns, the second without its end.
  void Write() {
    SessionJournal journal = Open();
    ASSERT_TRUE(journal.Replace({1, 2}, {}));
    ASSERT_TRUE(journal.BeginTurn("note", {3, 4, 5}));
    ASSERT_TRUE(journal.AddAnswer(6));
    ASSERT_TRUE(journal.AddAnswer(7));
    ASSERT_TRUE(journal.EndTurn({8}));
    ASSERT_TRUE(journal.BeginTurn("", {9}));
    ASSERT_TRUE(journal.AddAnswer(10));
  }

  test::TempFolder folder_;
};

TEST_F(Journal, HoldsWhatWasAppended) {
  Write();
  const SessionJournal journal = Open();
  EXPECT_EQ(journal.preamble(), (std::vector<TokenId>{1, 2}));
  ASSERT_EQ(journal.turns().size(), 2u);
  EXPECT_EQ(journal.turns()[0].note, "note");
  EXPECT_EQ(journal.turns()[0].prompt, (std::vector<TokenId>{3, 4, 5}));
  EXPECT_EQ(journal.turns()[0].answer, (std::vector<TokenId>{6, 7}));
  EXPECT_EQ(journal.turns()[0].closing, (std::vector<TokenId>{8}));
  EXPECT_TRUE(journal.turns()[0].finished);
  EXPECT_FALSE(journal.turns()[1].finished);
  EXPECT_EQ(journal.Tokens(), (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

// A full disk for one token, then room again: what was not written comes with the next token.
TEST_F(Journal, ATokenThatCouldNotBeWrittenIsNotLeftOut) {
  signal(SIGXFSZ, SIG_IGN);
  {
    SessionJournal journal = Open();
    ASSERT_TRUE(journal.BeginTurn("", {1}));
    ASSERT_TRUE(journal.AddAnswer(2));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit full{std::filesystem::file_size(Path()) + 5, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    const Status third = journal.AddAnswer(3), fourth = journal.AddAnswer(4);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(third);
    EXPECT_FALSE(fourth);
    EXPECT_EQ(Open().turns().back().answer, (std::vector<TokenId>{2})) << "no half entry";
    ASSERT_TRUE(journal.AddAnswer(5));
    EXPECT_EQ(Open().turns().back().answer, (std::vector<TokenId>{2, 3, 4, 5}));
    ASSERT_TRUE(journal.EndTurn({6}));
  }
  const SessionJournal journal = Open();
  EXPECT_TRUE(journal.turns().back().finished);
  EXPECT_EQ(journal.Tokens(), (std::vector<TokenId>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Journal, DamagedAnywhereNothingOfItIsLost) {
  Write();
  const std::string whole = ReadBytes(Path());
  EXPECT_EQ(Open().kept_damaged(), "");
  std::set<std::string> names;
  for (size_t at = 24; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << damaged;
    const SessionJournal journal = Open();
    ASSERT_NE(journal.kept_damaged(), "") << at;
    EXPECT_EQ(ReadBytes(journal.kept_damaged()), damaged) << at;
    EXPECT_TRUE(names.insert(journal.kept_damaged()).second) << "over an earlier one";
    EXPECT_EQ(Open().kept_damaged(), "") << "what is left is whole";
  }
}

TEST_F(Journal, CutAnywhereItHoldsABeginningAndGoesOn) {
  Write();
  const std::string whole = ReadBytes(Path());
  const std::vector<TokenId> all = Open().Tokens();
  for (size_t size = 24; size <= whole.size(); ++size) {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    {
      SessionJournal journal = Open();
      const std::vector<TokenId> tokens = journal.Tokens();
      ASSERT_LE(tokens.size(), all.size());
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin())) << size;
      if (journal.turns().empty() || journal.turns().back().finished) {
        ASSERT_TRUE(journal.BeginTurn("again", {11}));
      }
      ASSERT_TRUE(journal.AddAnswer(12));
    }
    const SessionJournal again = Open();
    ASSERT_EQ(again.Tokens().back(), 12) << size;
  }
}

TEST_F(Journal, AChangedByteEndsItThere) {
  Write();
  const std::string whole = ReadBytes(Path());
  const std::vector<TokenId> all = Open().Tokens();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    const auto content = SessionJournal::Parse(std::as_bytes(std::span(bad)), kModel);
    ASSERT_EQ(content.has_value(), at >= 24) << at;
    if (!content) continue;
    ASSERT_LE(content->good_bytes, at);
  }
}

TEST_F(Journal, AnotherModelOrVersionOrFileIsRefused) {
  Write();
  const auto other = SessionJournal::Open(Path(), kModel + 1);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), ErrorCode::kUnsupported);
  std::string bytes = ReadBytes(Path());
  bytes[7] = '2';
  EXPECT_EQ(SessionJournal::Parse(std::as_bytes(std::span(bytes)), kModel).error().code(), ErrorCode::kUnsupported);
  const std::string text = "something else altogether, long enough";
  EXPECT_EQ(SessionJournal::Parse(std::as_bytes(std::span(text)), kModel).error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(SessionJournal::Parse({}, kModel).error().code(), ErrorCode::kCorrupt);
}

TEST_F(Journal, ReplacedItHoldsTheNewAndGoesOn) {
  Write();
  {
    SessionJournal journal = Open();
    std::vector<SessionTurn> turns = journal.turns();
    turns.erase(turns.begin());
    ASSERT_TRUE(journal.Replace({1}, turns));
    ASSERT_TRUE(journal.AddAnswer(11));
    ASSERT_TRUE(journal.EndTurn({}));
  }
  const SessionJournal journal = Open();
  EXPECT_EQ(journal.Tokens(), (std::vector<TokenId>{1, 9, 10, 11}));
  EXPECT_TRUE(journal.turns()[0].finished);
}

}  // namespace
}  // namespace deltafin
