#include <gtest/gtest.h>

#include <fstream>

#include "pack/pack_case.h"
#include "setup/setup_journal.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

const SetupEntry kEntries[] = {{SetupEntry::Kind::kRange, 3, 0, 1000, 0},
                               {SetupEntry::Kind::kVerified, 4, 0, 0, -5},
                               {SetupEntry::Kind::kAgain, 3, 0, 0, 0},
                               {SetupEntry::Kind::kRange, 3, UINT64_MAX, 1, 0}};

class SetupJournalTest : public testing::Test {
 protected:
  // A journal with all entries, as text.
  std::string Written() {
    Result<std::unique_ptr<SetupJournal>> journal = SetupJournal::Open(folder_.path(), R"({"a":1})", {}, {});
    EXPECT_TRUE(journal);
    for (const SetupEntry& entry : kEntries) EXPECT_TRUE((*journal)->Append(entry));
    journal->reset();
    return ReadFileBytes(path());
  }
  std::string path() const { return folder_.path() + "/" + kSetupJournalName; }

  TempFolder folder_;
};

TEST_F(SetupJournalTest, ReadsBackWhatWasWritten) {
  Written();
  const auto contents = SetupJournal::Read(folder_.path());
  ASSERT_TRUE(contents && *contents);
  EXPECT_EQ((*contents)->header, R"({"a":1})");
  EXPECT_EQ((*contents)->entries, std::vector<SetupEntry>(std::begin(kEntries), std::end(kEntries)));
}

TEST_F(SetupJournalTest, ThereIsNoneInAnEmptyFolder) {
  const auto contents = SetupJournal::Read(folder_.path());
  ASSERT_TRUE(contents);
  EXPECT_FALSE(*contents);
}

TEST_F(SetupJournalTest, CutAnywhereItKeepsTheWholeLinesBefore) {
  const std::string text = Written();
  const size_t first = text.find('\n') + 1;
  size_t lines = 0;
  for (size_t cut = first; cut <= text.size(); ++cut) {
    const auto contents = SetupJournal::Parse(std::string_view(text).substr(0, cut), "j");
    ASSERT_TRUE(contents);
    lines = static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut), '\n')) - 1;
    ASSERT_EQ(contents->entries.size(), lines);
    ASSERT_LE(contents->good_bytes, cut);
  }
  EXPECT_EQ(lines, std::size(kEntries));
}

TEST_F(SetupJournalTest, ADamagedByteEndsItThereOrRefusesIt) {
  const std::string text = Written();
  const size_t first = text.find('\n');
  for (size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    const auto contents = SetupJournal::Parse(bad, "j");
    if (at < first) {
      EXPECT_FALSE(contents) << at;
    } else if (contents) {
      EXPECT_LT(contents->entries.size(), std::size(kEntries)) << at;
    }
  }
}

TEST_F(SetupJournalTest, GoesOnAfterTheGoodPart) {
  const std::string text = Written();
  WriteFileBytes(path(), text + "range 9 9 9 0000");
  const auto contents = SetupJournal::Read(folder_.path());
  ASSERT_TRUE(contents && *contents);
  {
    const auto journal = SetupJournal::Open(folder_.path(), (*contents)->header, *contents, {});
    ASSERT_TRUE(journal);
    ASSERT_TRUE((*journal)->Append(kEntries[0]));
  }
  const auto again = SetupJournal::Read(folder_.path());
  ASSERT_TRUE(again && *again);
  ASSERT_EQ((*again)->entries.size(), std::size(kEntries) + 1);
  EXPECT_EQ((*again)->entries.back(), kEntries[0]);
}

TEST_F(SetupJournalTest, ASecondWriterIsRefused) {
  const auto first = SetupJournal::Open(folder_.path(), "{}", {}, {});
  ASSERT_TRUE(first);
  const auto contents = SetupJournal::Read(folder_.path());
  const auto second = SetupJournal::Open(folder_.path(), "{}", *contents, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace deltafin::test
