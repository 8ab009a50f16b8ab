// What verify promises: every damaged byte is named with file and range, and repair takes only sound sources.
#include "pack/verify.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "checkpoint/expert_set_folders.h"
#include "checkpoint/hex.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

class VerifyTest : public testing::Test {
 protected:
  void PackOn(int drives, uint64_t copies = 0, uint64_t chunk = 0) {
    PackOptions options = c_.Options(c_.drives(drives), {3e9, 2e9, 1e9, 1e9, 1e9});
    options.replica_bytes = copies * 12 * kPackPage;
    options.checksum_chunk = chunk;
    const Result<PackReport> report = Pack(options, {}, {});
    ASSERT_TRUE(report) << report.error().message();
  }
  void RemoveExpertShards() {
    for (const int number : {2, 3, 4}) fs::remove(c_.shard(number));
  }

  PackCase c_;
};

TEST_F(VerifyTest, NamesEveryFlippedByteInEveryFile) {
  PackOn(3, 10);
  std::mt19937_64 random(5);
  for (const auto& [path, bytes] : c_.Files()) {
    if (!path.starts_with(c_.root() + "/drive")) continue;
    for (int i = 0; i < 4; ++i) {
      const uint64_t at = std::uniform_int_distribution<uint64_t>(0, bytes.size() - 1)(random);
      SCOPED_TRACE(path + ", byte " + std::to_string(at));
      FlipByte(path, at);
      const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(3));
      ASSERT_EQ(bad.size(), 1u);
      EXPECT_EQ(bad[0].file, path);
      EXPECT_EQ(bad[0].offset, at);
      EXPECT_EQ(bad[0].bytes, 1u);
      EXPECT_EQ(bad[0].key.layer < 0, path.find("deltafin-experts-g") != std::string::npos);
      EXPECT_FALSE(bad[0].repaired);
      FlipByte(path, at);
    }
  }
}

TEST_F(VerifyTest, WithoutAnotherSourceNamesTheChunk) {
  PackOn(2, 0, 3 * kPackPage);
  RemoveExpertShards();
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";  // 7 pages of each record
  const uint64_t stride = fs::file_size(path) / kPackRecords;
  FlipByte(path, 5 * stride + 4 * kPackPage + 9);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].offset, 5 * stride + 3 * kPackPage);
  EXPECT_EQ(bad[0].bytes, 3 * kPackPage);
  EXPECT_EQ(bad[0].key, (ExpertKey{1, 3}));  // names in a shard are sorted: 0, 1, 10, 11, 2, 3
}

TEST_F(VerifyTest, AChunkOnTwoDrivesWithoutAnotherSourceNamesBoth) {
  PackOn(2, 0, 3 * kPackPage);
  RemoveExpertShards();
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
  const uint64_t stride = fs::file_size(path) / kPackRecords;
  ASSERT_EQ(stride, 7 * kPackPage);
  FlipByte(path, 2 * stride + 6 * kPackPage);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2));
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].file, path);
  EXPECT_EQ(bad[1].file, c_.drive(1) + "/experts-g1-t3-1.bin");
  EXPECT_EQ(bad[1].bytes, 2 * kPackPage);
}

TEST_F(VerifyTest, PaddingIsChecked) {
  PackOn(2);
  RemoveExpertShards();
  const std::string path = c_.drive(1) + "/experts-g1-t3-1.bin";
  const uint64_t at = fs::file_size(path) - 1;
  FlipByte(path, at);
  std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "padding is not zero");
  EXPECT_EQ(bad[0].offset, at);
  bad = VerifyAll(c_, c_.drives(2), true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_TRUE(bad[0].repaired) << bad[0].repair_note;
  EXPECT_TRUE(VerifyAll(c_, c_.drives(2)).empty());
}

TEST_F(VerifyTest, RepairFromTheShardsRestoresEveryFile) {
  PackOn(3, 5);
  const FileContents before = c_.Files();
  for (const auto& [path, bytes] : before)
    if (path.starts_with(c_.drive(1))) FlipByte(path, bytes.size() / 2);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(3), true);
  EXPECT_GE(bad.size(), 4u);
  for (const BadRecord& b : bad) EXPECT_TRUE(b.repaired) << b.file << ": " << b.repair_note;
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(VerifyTest, RepairFromTheSecondCopyAndBack) {
  PackOn(3, kPackRecords);
  RemoveExpertShards();
  const FileContents before = c_.Files();
  FlipByte(c_.drive(0) + "/experts-g1-t3-0.bin", 100);
  const std::string copies = c_.drive(2) + "/" + [&] {
    for (const auto& entry : fs::directory_iterator(c_.drive(2)))
      if (entry.path().filename().string().find("-r") != std::string::npos) return entry.path().filename().string();
    return std::string();
  }();
  FlipByte(copies, fs::file_size(copies) - 10);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(3), true);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].repair_note, "from the second copy");
  EXPECT_EQ(bad[1].repair_note, "from the first copy");
  EXPECT_TRUE(bad[1].replica);
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(VerifyTest, NeverWritesFromASourceThatIsWrongItself) {
  PackOn(2);
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
  FlipByte(path, 50);
  // The shard's expert in slot 0 is damaged too: its first weight lies where the header ends.
  std::string shard = ReadFileBytes(c_.shard(2));
  for (size_t at = shard.size() / 2; at < shard.size(); at += 512) shard[at] = static_cast<char>(shard[at] ^ 1);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(shard[i]);
  for (size_t at = 8 + length; at < shard.size(); at += 512) shard[at] = static_cast<char>(shard[at] ^ 1);
  WriteFileBytes(c_.shard(2), shard);
  const FileContents before = c_.Files();
  bool wrote = false;
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2), true, [&](DiskStep, const std::string&) -> Status {
    wrote = true;
    return {};
  });
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_FALSE(bad[0].repaired);
  EXPECT_NE(bad[0].repair_note, "");
  EXPECT_FALSE(wrote);
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(VerifyTest, AShortFileAndAMissingOneAreNamedAndMadeAgain) {
  PackOn(2);
  const FileContents before = c_.Files();
  const std::string first = c_.drive(0) + "/experts-g1-t3-0.bin", second = c_.drive(1) + "/experts-g1-t3-1.bin";
  fs::resize_file(first, fs::file_size(first) - 1);
  fs::remove(second);
  std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2));
  EXPECT_GE(bad.size(), static_cast<size_t>(kPackRecords));
  bad = VerifyAll(c_, c_.drives(2), true);
  for (const BadRecord& b : bad) EXPECT_TRUE(b.repaired) << b.file << ": " << b.what << ": " << b.repair_note;
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(VerifyTest, BytesAfterTheLastRecordAreNamedAndCutOff) {
  PackOn(2);
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
  const uint64_t size = fs::file_size(path);
  fs::resize_file(path, size + 7);
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2), true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].offset, size);
  EXPECT_EQ(bad[0].bytes, 7u);
  EXPECT_TRUE(bad[0].repaired);
  EXPECT_EQ(fs::file_size(path), size);
}

TEST_F(VerifyTest, VacatedBytesMustBeZero) {
  PackOn(1);
  ASSERT_TRUE(Rebalance(c_.Options(c_.drives(2), {1e9, 1e9}), c_.drives(1), {}, {}));
  const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
  const uint64_t at = (7 * 12 + 8) * kPackPage + 3;
  FlipByte(path, at);
  std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].file, path);
  EXPECT_EQ(bad[0].offset, at);
  EXPECT_EQ(bad[0].bytes, 1u);
  EXPECT_EQ(bad[0].what, "unused bytes are not zero");
  EXPECT_EQ(bad[0].key, (ExpertKey{1, 5}));  // 0, 1, 10, 11, 2, 3, 4, 5
  bad = VerifyAll(c_, c_.drives(2), true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_TRUE(bad[0].repaired) << bad[0].repair_note;
  EXPECT_TRUE(VerifyAll(c_, c_.drives(2)).empty());
}

// 36 records of 12 pages; drive 2 has the last two of each, in the last chunk.
TEST_F(VerifyTest, ADriveThatIsMissingIsToldAndTheOthersAreChecked) {
  for (const uint64_t copies : {0, kPackRecords}) {
    SCOPED_TRACE(copies);
    c_.Reset();
    PackOn(3, copies, 2 * kPackPage);
    const FileContents before = c_.Files();
    const std::string path = c_.drive(0) + "/experts-g1-t3-0.bin";
    FlipByte(path, 100);
    fs::rename(c_.drive(2), c_.root() + "/away");
    VerifyOptions options;
    options.model = c_.model();
    options.experts = c_.drives(3);
    options.io = "pread";
    options.repair = true;
    std::vector<BadRecord> bad;
    const Result<VerifyReport> report = Verify(options, [&](const BadRecord& b) { bad.push_back(b); }, {}, {});
    ASSERT_TRUE(report) << report.error().message();
    ASSERT_EQ(bad.size(), 2u);
    EXPECT_EQ(bad[0].file, c_.drive(2));
    EXPECT_NE(bad[0].what.find("drive 2 ('drive2')"), std::string::npos) << bad[0].what;
    EXPECT_NE(bad[0].what.find("parts of 36 experts"), std::string::npos) << bad[0].what;
    EXPECT_EQ(bad[0].bytes, 0u);
    EXPECT_FALSE(bad[0].repaired);
    EXPECT_EQ(bad[1].file, path);
    EXPECT_EQ(bad[1].offset, 100u);
    EXPECT_TRUE(bad[1].repaired) << bad[1].repair_note;
    EXPECT_EQ(report->records, 36u);
    EXPECT_EQ(report->records_partly, 36u);
    EXPECT_EQ(report->records_unreadable, copies == 0 ? 36u : 0u);
    fs::rename(c_.root() + "/away", c_.drive(2));
    EXPECT_EQ(Difference(before, c_.Files()), "");
  }
}

TEST_F(VerifyTest, ADriveOfAnOlderGenerationIsToldAndNotWritten) {
  fs::rename(c_.shard(3), c_.root() + "/late");
  PackOn(2);
  fs::copy(c_.drive(1), c_.root() + "/stale", fs::copy_options::recursive);
  fs::rename(c_.root() + "/late", c_.shard(3));
  PackOn(2);
  fs::remove_all(c_.drive(1));
  fs::rename(c_.root() + "/stale", c_.drive(1));
  const FileContents before = c_.Files();
  const std::vector<BadRecord> bad = VerifyAll(c_, c_.drives(2), true);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].file, c_.drive(1));
  EXPECT_NE(bad[0].what.find("holds only generation 1"), std::string::npos) << bad[0].what;
  EXPECT_EQ(Difference(before, c_.Files()), "");
}

TEST_F(VerifyTest, ShardsThatGaveUpTheirExpertsAreCountedAsNotChecked) {
  PackOptions pack = c_.Options(c_.drives(2));
  pack.move = true;
  ASSERT_TRUE(Pack(pack, {}, {}));
  VerifyOptions options;
  options.model = c_.model();
  const Result<VerifyReport> report = Verify(options, [](const BadRecord&) {}, {}, {});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->records, 0u);
  EXPECT_EQ(report->records_absent, 36u);
  ASSERT_EQ(report->notes.size(), 1u);
  const std::string set = ToHex(FindSets(c_.drives(2))->candidates[0].manifest.set_id);
  for (const std::string& says : {std::string("36 of 36 experts"), set, c_.drive(1)})
    EXPECT_NE(report->notes[0].find(says), std::string::npos) << report->notes[0];
}

TEST_F(VerifyTest, ShardsAreCheckedForScalesOf255AndAgainstTheSet) {
  VerifyOptions options;
  options.model = c_.model();
  options.io = "pread";
  std::vector<BadRecord> bad;
  const auto verify = [&] {
    bad.clear();
    const Result<VerifyReport> report = Verify(options, [&](const BadRecord& b) { bad.push_back(b); }, {}, {});
    EXPECT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->records, static_cast<uint64_t>(kPackRecords));
  };
  verify();
  EXPECT_TRUE(bad.empty());
  PackOn(2);
  verify();
  EXPECT_TRUE(bad.empty());
  const std::string shard = ReadFileBytes(c_.shard(3));
  FlipByte(c_.shard(3), shard.size() / 2);
  verify();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].file, c_.shard(3));
  EXPECT_EQ(bad[0].key.layer, 2);
  EXPECT_LE(bad[0].offset, shard.size() / 2);
  EXPECT_GT(bad[0].offset + bad[0].bytes, shard.size() / 2);
}

TEST(PackJournal, ATornTailIsIgnoredAtEveryLength) {
  const TempFolder folder;
  Result<PackJournal> journal = PackJournal::Create(folder.path(), "{}", {});
  ASSERT_TRUE(journal);
  std::vector<JournalEntry> entries(3);
  for (uint32_t i = 0; i < 3; ++i) {
    entries[i].position = i;
    entries[i].slot = i;
    entries[i].hash = i * 7;
    entries[i].whole = 3;
    entries[i].chunk_hashes = {i, i + 1};
  }
  ASSERT_TRUE(journal->Append(entries));
  const std::string bytes = ReadFileBytes(folder.path() + "/" + kJournalName);
  const size_t head = 24 + 2, entry = (bytes.size() - head) / 3;
  for (size_t length = head; length <= bytes.size(); ++length) {
    const auto parsed = PackJournal::Parse(std::as_bytes(std::span(bytes).first(length)), "journal");
    ASSERT_TRUE(parsed && *parsed) << length;
    EXPECT_EQ((*parsed)->entries.size(), (length - head) / entry);
    EXPECT_EQ((*parsed)->good_bytes, head + (length - head) / entry * entry);
    for (size_t i = 0; i < (*parsed)->entries.size(); ++i) EXPECT_EQ((*parsed)->entries[i], entries[i]);
  }
}

TEST(PackJournal, DamageBeforeShardsWereEmptiedIsRefusedAndATornTailIsNot) {
  const TempFolder folder;
  Result<PackJournal> journal = PackJournal::Create(folder.path(), "{\"work\":\"pack\"}", {});
  ASSERT_TRUE(journal);
  JournalEntry record, emptied;
  record.whole = 3;
  emptied.kind = JournalKind::kEmptied;
  emptied.shard = "model-00001-of-00002.safetensors";
  ASSERT_TRUE(journal->Append({record, record}));
  const size_t records_end = ReadFileBytes(folder.path() + "/" + kJournalName).size();
  ASSERT_TRUE(journal->Append({emptied}));
  const size_t emptied_end = ReadFileBytes(folder.path() + "/" + kJournalName).size();
  ASSERT_TRUE(journal->Append({record}));
  const std::string bytes = ReadFileBytes(folder.path() + "/" + kJournalName);
  const auto parse = [](const std::string& text) {
    return PackJournal::Parse(std::as_bytes(std::span(text)), "journal");
  };
  std::string early = bytes, late = bytes;
  early[records_end - 9] = static_cast<char>(early[records_end - 9] ^ 4);
  late[emptied_end + 9] = static_cast<char>(late[emptied_end + 9] ^ 4);
  ASSERT_FALSE(parse(early));
  EXPECT_NE(parse(early).error().message().find("Do not remove it"), std::string::npos);
  ASSERT_TRUE(parse(late));
  EXPECT_EQ((*parse(late))->entries.size(), 3u);
  EXPECT_EQ((*parse(bytes.substr(0, bytes.size() - 3)))->entries.size(), 3u);
}

TEST(PackJournal, ADamagedEntryEndsIt) {
  const TempFolder folder;
  Result<PackJournal> journal = PackJournal::Create(folder.path(), "{\"work\":\"pack\"}", {});
  ASSERT_TRUE(journal);
  JournalEntry entry;
  entry.whole = 3;
  ASSERT_TRUE(journal->Append({entry, entry, entry}));
  const std::string bytes = ReadFileBytes(folder.path() + "/" + kJournalName);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const auto parsed = PackJournal::Parse(std::as_bytes(std::span(damaged)), "journal");
    EXPECT_TRUE(!parsed || (*parsed)->entries.size() < 3) << at;
  }
}

}  // namespace
}  // namespace deltafin::test
