// The two files that say what a streamed folder holds: what they promise, and what damage to them does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/presence_map.h"
#include "checkpoint/stream_manifest.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

StreamManifest Manifest() {
  StreamManifest m;
  m.endpoint = "https://hub.example";
  m.repository = "owner/name";
  m.revision = "main";
  m.commit = std::string(40, 'c');
  m.files = {{"a.safetensors", 1000, std::string(64, '1'), ""}, {"b.safetensors", 500, "", std::string(40, '2')}};
  return m;
}

Bytes AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(StreamManifest, ComesBackAsItWasWritten) {
  const StreamManifest m = Manifest();
  const Result<StreamManifest> read = StreamManifest::FromText(m.ToText(), "m");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, m);
}

TEST(StreamManifest, RefusesATornTextNamesThatLeaveTheFolderAndFilesWithoutAChecksum) {
  const std::string text = Manifest().ToText();
  for (size_t bytes : {size_t{0}, text.size() / 2, text.size() - 1})
    EXPECT_FALSE(StreamManifest::FromText(text.substr(0, bytes), "m"));
  StreamManifest climbs = Manifest();
  climbs.files[0].name = "../a.safetensors";
  EXPECT_FALSE(StreamManifest::FromText(climbs.ToText(), "m"));
  StreamManifest bare = Manifest();
  bare.files[0].sha256 = "";
  EXPECT_FALSE(StreamManifest::FromText(bare.ToText(), "m"));
  StreamManifest twice = Manifest();
  twice.files[1].name = twice.files[0].name;
  EXPECT_FALSE(StreamManifest::FromText(twice.ToText(), "m"));
}

TEST(StreamManifest, AnotherCommitOrFileIsAnotherId) {
  StreamManifest other = Manifest();
  other.commit = std::string(40, 'd');
  EXPECT_NE(other.Id(), Manifest().Id());
  other = Manifest();
  other.files[1].bytes = 501;
  EXPECT_NE(other.Id(), Manifest().Id());
}

class Presence : public testing::Test {
 protected:
  Presence() {
    entries_ = {{PresenceKind::kDense, {0, 0, 100}, 11},
                {PresenceKind::kExpert, {0, 100, 50}, 12},
                {PresenceKind::kExpert, {1, 20, 50}, 13},
                {PresenceKind::kDropped, {0, 100, 50}, 0}};
    text_ = PresenceHeader(manifest_.Id());
    for (const PresenceEntry& entry : entries_) text_ += PresenceEntryText(entry, manifest_.Id());
  }
  const StreamManifest manifest_ = Manifest();
  std::vector<PresenceEntry> entries_;
  std::string text_;
};

TEST_F(Presence, ComesBackAsItWasWritten) {
  const auto read = ParsePresence(AsBytes(text_), manifest_, "p");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->entries, entries_);
  EXPECT_EQ(read->good_bytes, text_.size());
  EXPECT_EQ(read->damaged, 0u);
}

TEST_F(Presence, AFlippedBitCostsItsOwnEntryOnly) {
  for (size_t byte = kPresenceHeaderBytes; byte < text_.size(); ++byte) {
    std::string damaged = text_;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 4);
    const auto read = ParsePresence(AsBytes(damaged), manifest_, "p");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->damaged, 1u) << byte;
    EXPECT_EQ(read->entries.size(), 3u);
  }
}

TEST_F(Presence, ATornEndIsCutOff) {
  const auto read = ParsePresence(AsBytes(text_).first(text_.size() - 1), manifest_, "p");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->entries.size(), 3u);
  EXPECT_EQ(read->good_bytes, text_.size() - kPresenceEntryBytes);
}

TEST_F(Presence, OfAnotherManifestIsRefused) {
  StreamManifest other = manifest_;
  other.commit = std::string(40, 'd');
  EXPECT_FALSE(ParsePresence(AsBytes(text_), other, "p"));
  EXPECT_FALSE(ParsePresence(AsBytes(text_).first(kPresenceHeaderBytes - 1), manifest_, "p"));
}

TEST_F(Presence, RangesThatLeaveTheirFileAreDamaged) {
  const std::vector<PresenceEntry> wrong = {{PresenceKind::kExpert, {0, 990, 11}, 1},
                                            {PresenceKind::kExpert, {2, 0, 1}, 1},
                                            {PresenceKind::kExpert, {-1, 0, 1}, 1},
                                            {PresenceKind::kExpert, {0, UINT64_MAX, 2}, 1},
                                            {PresenceKind::kExpert, {0, 0, 0}, 1}};
  std::string text = PresenceHeader(manifest_.Id());
  for (const PresenceEntry& entry : wrong) text += PresenceEntryText(entry, manifest_.Id());
  const auto read = ParsePresence(AsBytes(text), manifest_, "p");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->damaged, wrong.size());
}

TEST_F(Presence, TheMapKnowsWhatIsThereWhatIsOldestAndWhatIsCovered) {
  PresenceMap map(2);
  map.Apply(entries_[0]);
  map.Apply(entries_[1]);
  map.Apply(entries_[2]);
  EXPECT_EQ(map.HashOf({0, 100, 50}), 12u);
  EXPECT_EQ(map.HashOf({0, 100, 49}), std::nullopt);
  EXPECT_EQ(map.expert_bytes(), 100u);
  EXPECT_TRUE(map.Covers({0, 0, 150}));
  EXPECT_FALSE(map.Covers({0, 0, 151}));
  EXPECT_FALSE(map.Covers({1, 0, 70}));
  uint64_t age = 0;
  EXPECT_EQ(map.Oldest(&age), (FileRange{0, 100, 50}));
  EXPECT_EQ(map.Oldest(&age), (FileRange{1, 20, 50}));
  EXPECT_EQ(map.Oldest(&age), std::nullopt);
  map.Apply(entries_[3]);
  EXPECT_EQ(map.HashOf({0, 100, 50}), std::nullopt);
  EXPECT_EQ(map.experts(), 1u);
  EXPECT_FALSE(map.Covers({0, 0, 101}));
}

}  // namespace
}  // namespace deltafin
