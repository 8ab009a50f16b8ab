// The manifest and the index of an expert set: what is written is read again, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "support/expert_set_builder.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using test::BuildExpertSet;
using test::BuiltExpertSet;
using ::testing::HasSubstr;

const BuiltExpertSet& Built() {
  static const test::TempFolder folder;
  static const BuiltExpertSet built =
      BuildExpertSet(test::RepoPath("tests/data/k3-micro"), test::DriveFolders(folder.path(), 3),
                     {.rates = {3, 2, 1}, .replicas = 0.5, .page = 512});
  return built;
}

// The same text with a right checksum, so that what comes after it is reached.
std::string Signed(const std::string& text) {
  const std::string body = text.substr(0, text.find(",\"checksum\":\""));
  return body + ",\"checksum\":\"" + ToHex(Hash64(body)) + "\"}\n";
}

std::string Message(const std::string& text) {
  const auto manifest = ExpertSetManifest::FromText(text, "the manifest");
  return manifest ? "accepted" : manifest.error().message();
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ExpertSetManifest, IsReadAsItWasWritten) {
  ExpertSetManifest manifest = Built().manifest;
  manifest.this_drive = 2;
  manifest.model_id = 0xfedcba9876543210;
  manifest.drives[1] = {"nvme \"1\" \xc3\xa4", 7.1e9};
  const std::string text = manifest.ToText();
  const auto read = ExpertSetManifest::FromText(text, "m");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->ToText(), text);
  EXPECT_EQ(read->set_id, 0x5e7u);
  EXPECT_EQ(read->model_id, 0xfedcba9876543210u);
  EXPECT_EQ(read->this_drive, 2);
  EXPECT_EQ(read->drives[1].name, "nvme \"1\" \xc3\xa4");
  EXPECT_EQ(read->drives[1].bytes_per_second, 7.1e9);
  ASSERT_EQ(read->tables.size(), 1u);
  EXPECT_EQ(read->tables[0].pieces.size(), manifest.tables[0].pieces.size());
  EXPECT_EQ(read->tables[0].pieces[1].cut, manifest.tables[0].pieces[1].cut);
  EXPECT_EQ(read->tables[0].replica_pieces.back().file, manifest.tables[0].replica_pieces.back().file);
  EXPECT_EQ(read->index_hash, manifest.index_hash);
}

TEST(ExpertSetManifest, AnyChangedByteIsRefused) {
  const std::string text = Built().manifest.ToText();
  for (size_t at = 0; at < text.size(); ++at) {
    for (const int flip : {1, 32, 128}) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      const auto read = ExpertSetManifest::FromText(changed, "m");
      ASSERT_FALSE(read) << "byte " << at;
      ASSERT_EQ(read.error().code(), ErrorCode::kCorrupt);
    }
  }
}

TEST(ExpertSetManifest, ATornOneIsRefused) {
  const std::string text = Built().manifest.ToText();
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_THAT(Message(text.substr(0, length)), HasSubstr("torn")) << length;
  EXPECT_THAT(Message(text + "\n"), HasSubstr("torn"));
  EXPECT_THAT(Message(text + text), HasSubstr("torn"));
}

TEST(ExpertSetManifest, ANewerVersionIsUnsupportedAndAnotherFormatCorrupt) {
  const std::string text = Built().manifest.ToText();
  const auto newer = ExpertSetManifest::FromText(Signed(Replace(text, "\"version\":1", "\"version\":2")), "m");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(newer.error().message(), HasSubstr("newer deltafin"));
  EXPECT_THAT(Message(Signed(Replace(text, "deltafin-experts", "deltafin-expertz"))), HasSubstr("format"));
}

TEST(ExpertSetManifest, ContradictionsAreRefused) {
  const std::string text = Built().manifest.ToText();
  const std::string hidden = Cat("\"hidden\":", Built().manifest.hidden);
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"page\":512", "\"page\":768", "power of two"},
      {"\"page\":512", "\"page\":1024", "record_bytes"},
      {"\"end\":1536", "\"end\":1500", "whole pages"},
      {"\"this_drive\":0", "\"this_drive\":3", "this_drive"},
      {"\"this_drive\":0", "\"this_drive\":-1", "this_drive"},
      {"\"experts\":40", "\"experts\":41", "index_bytes"},
      {"\"experts\":40", "\"experts\":0", "experts"},
      {"\"moe_layers\":5", "\"moe_layers\":1048576", "many"},
      {hidden, "\"hidden\":48", "32"},
      {hidden, "\"hidden\":96", "record_bytes"},
      {"\"records\":200", "\"records\":199", "records"},
      {"\"slots\":200", "\"slots\":4000000", "records"},
      {"\"replica_slots\":100", "\"replica_slots\":201", "replica_slots"},
      {"\"whole\":3", "\"whole\":2", "whole scales"},
      {"\"begin\":0", "\"begin\":512", "begins at 0"},
      {"\"file_begin\":0", "\"file_begin\":512", "room"},
      {"\"file_begin\":0", "\"file_begin\":1", "whole pages"},
      {"\"file\":\"experts-g1-t3-0.bin\"", "\"file\":\"../x\"", "file"},
      {"\"file\":\"experts-g1-t3-0.bin\"", "\"file\":\"index-g1.bin\"", "index"},
      {"\"file\":\"experts-g1-t3-0.bin\"", "\"file\":\"deltafin-experts-g1.json\"", "manifest"},
      {"\"index_file\":\"index-g1.bin\"", "\"index_file\":\"a/b\"", "index_file"},
      {"\"set_id\":\"00", "\"set_id\":\"0X", "set_id"},
      {"\"generation\":1", "\"generation\":\"1\"", "generation"},
      {"\"bytes_per_second\":3.0", "\"bytes_per_second\":-3.0", "bytes_per_second"},
      {"\"tables\":[", "\"tables\":[7,", "tables[0]"},
      {"\"drives\":[", "\"drivez\":[", "drives"},
  };
  for (const auto& [from, to, expected] : cases) {
    const std::string message = Message(Signed(Replace(text, from, to)));
    EXPECT_NE(message, "accepted") << to;
    EXPECT_THAT(message, HasSubstr(expected)) << to;
    EXPECT_THAT(message, HasSubstr("the manifest: ")) << to;
  }
}

TEST(ExpertSetManifest, ACopyOnTheSameDriveIsRefused) {
  ExpertSetManifest manifest = Built().manifest;
  ASSERT_EQ(manifest.tables[0].pieces[0].cut.drive, 0);
  manifest.tables[0].replica_pieces[0].cut.drive = 0;
  EXPECT_THAT(Message(manifest.ToText()), HasSubstr("copies on other drives"));
}

TEST(ExpertSetManifest, PiecesMayShareAFileOfOneUseOnly) {
  ExpertSetManifest manifest = Built().manifest;
  std::vector<ExpertPieceFile>& pieces = manifest.tables[0].pieces;
  ASSERT_EQ(pieces.size(), 3u);
  // Two pieces of drive 0 in one file, as after a drive between them was taken out.
  pieces[2].cut.drive = 0;
  pieces[2].file = pieces[0].file;
  pieces[2].file_begin = pieces[0].file_begin = 0;
  pieces[2].stride = pieces[0].stride = manifest.tables[0].record_bytes;
  manifest.tables[0].replica_pieces.clear();
  manifest.tables[0].replica_slots = 0;
  EXPECT_EQ(Message(manifest.ToText()), "accepted");
  pieces[2].stride += 512;
  EXPECT_THAT(Message(manifest.ToText()), HasSubstr("one use of this file"));
}

TEST(ExpertSetIndex, IsReadAsItWasWritten) {
  const BuiltExpertSet& built = Built();
  const std::vector<std::byte> bytes = built.index.ToBytes(built.manifest);
  EXPECT_EQ(bytes.size(), IndexFileBytes(built.manifest));
  const auto read = ExpertSetIndex::FromBytes(bytes, built.manifest, true, "index");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->ToBytes(built.manifest), bytes);
  EXPECT_EQ(read->chunk_hashes, built.index.chunk_hashes);
  ASSERT_EQ(read->entries.size(), 200u);
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(read->entries[i].slot, built.index.entries[i].slot);
    EXPECT_EQ(read->entries[i].replica_slot, built.index.entries[i].replica_slot);
    EXPECT_EQ(read->entries[i].hash, built.index.entries[i].hash);
  }
  const std::vector<uint64_t> starts = read->ChunkStarts(built.manifest);
  ASSERT_EQ(starts.size(), 201u);
  EXPECT_EQ(starts[1], ChunksOf(3584, 1024));
  EXPECT_EQ(starts.back(), ChunkCount(built.manifest));
  const auto brief = ExpertSetIndex::FromBytes(bytes, built.manifest, false, "index");
  ASSERT_TRUE(brief);
  EXPECT_TRUE(brief->chunk_hashes.empty());
}

TEST(ExpertSetIndex, AnyChangedOrMissingByteIsRefused) {
  const BuiltExpertSet& built = Built();
  const std::vector<std::byte> bytes = built.index.ToBytes(built.manifest);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> changed = bytes;
    changed[at] ^= std::byte{1};
    const auto read = ExpertSetIndex::FromBytes(changed, built.manifest, false, "index");
    ASSERT_FALSE(read) << at;
    ASSERT_EQ(read.error().code(), ErrorCode::kCorrupt);
  }
  for (size_t length = 0; length < bytes.size(); length += 97)
    ASSERT_FALSE(ExpertSetIndex::FromBytes(Bytes(bytes).first(length), built.manifest, false, "index")) << length;
}

// With the right checksum, so that what comes after it is reached.
std::string EntryMessage(const std::function<void(std::vector<ExpertSetEntry>&)>& edit) {
  BuiltExpertSet built = Built();
  edit(built.index.entries);
  const std::vector<std::byte> bytes = built.index.ToBytes(built.manifest);
  built.manifest.index_hash = Hash64(bytes);
  const auto read = ExpertSetIndex::FromBytes(bytes, built.manifest, false, "index");
  return read ? "accepted" : read.error().message();
}

TEST(ExpertSetIndex, EverySlotIsTakenExactlyOnce) {
  using Entries = std::vector<ExpertSetEntry>;
  EXPECT_EQ(EntryMessage([](Entries&) {}), "accepted");
  EXPECT_EQ(EntryMessage([](Entries& e) { std::swap(e[3].slot, e[7].slot); }), "accepted");
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].slot = e[7].slot; }), HasSubstr("taken"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].slot = 200; }), HasSubstr("slot 200"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].slot = kNoSlot; }), HasSubstr("slot"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3] = {}; }), HasSubstr("slots that nobody has"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].table = 1; }), HasSubstr("table"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].bases[1] = 100; }), HasSubstr("record size"));
  EXPECT_THAT(EntryMessage([](Entries& e) { e[3].bases[1] = 240; }), HasSubstr("base"));
  EXPECT_THAT(EntryMessage([](Entries& e) {
                for (ExpertSetEntry& entry : e)
                  if (entry.replica_slot == 5) entry.replica_slot = 6;
              }),
              HasSubstr("replica slot 6"));
  EXPECT_THAT(EntryMessage([](Entries& e) {
                for (ExpertSetEntry& entry : e)
                  if (entry.replica_slot == 5) entry.replica_slot = kNoSlot;
              }),
              HasSubstr("nobody has"));
}

TEST(ExpertSetIndex, OfAnotherSetIsRefused) {
  BuiltExpertSet built = Built();
  const std::vector<std::byte> bytes = built.index.ToBytes(built.manifest);
  built.manifest.set_id += 1;
  const auto read = ExpertSetIndex::FromBytes(bytes, built.manifest, false, "index");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message(), HasSubstr("another set's"));
}

TEST(Hex, IsSixteenLowerCaseDigits) {
  EXPECT_EQ(ToHex(0x5e7), "00000000000005e7");
  EXPECT_EQ(FromHex("00000000000005e7"), 0x5e7u);
  EXPECT_EQ(FromHex(ToHex(~uint64_t{0})), ~uint64_t{0});
  for (const char* bad : {"", "5e7", "00000000000005E7", "00000000000005eg", "000000000000005e7", "+0000000000005e7"})
    EXPECT_EQ(FromHex(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace deltafin
