// State on a drive: what is read back goes on with the bits of a sequence read from its beginning; what is damaged, cut
// or foreign is refused, and leaves an empty session.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/platform.h"
#include "engine/snapshot_files.h"
#include "engine/snapshot_format.h"
#include "support/engine_runs.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokens = kIsSanitized ? 40 : 200;

std::vector<TokenId> RandomTokens(int64_t vocab, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class Snapshot : public testing::Test {
 protected:
  Snapshot() : engine_({.model = test::MicroFolder()}) {}
  void SetUp() override {
    ASSERT_TRUE(engine_.ok());
    vocab_ = engine_->spec().vocab_size;
    tokens_ = RandomTokens(vocab_, kTokens + 3, 5);
    Session session = New();
    Result<std::vector<float>> all = test::AllLogits(*engine_, session, tokens_, {kTokens});
    ASSERT_TRUE(all);
    whole_ = std::move(*all);
  }

  Session New() { return std::move(*engine_->NewSession()); }
  SnapshotIdentity Identity() { return {engine_->checkpoint().fingerprint(), engine_->backend_name()}; }
  SnapshotFiles Files() { return {folder_.path() + "/s", Identity()}; }
  void Read(Session& session, int64_t count) {
    const std::span<const TokenId> next =
        std::span(tokens_).subspan(session.tokens().size(), static_cast<size_t>(count));
    ASSERT_TRUE(engine_->Feed(session, next, Rows(nullptr, 0, vocab_), {}));
  }
  void ExpectGoesOn(Session& session) {
    const int64_t at = session.length();
    const Result<std::vector<float>> logits =
        test::AllLogits(*engine_, session, {tokens_.begin() + at, tokens_.begin() + at + 3}, {1});
    ASSERT_TRUE(logits);
    ASSERT_EQ(std::memcmp(logits->data(), whole_.data() + at * vocab_, logits->size() * sizeof(float)), 0) << at;
  }
  ErrorCode LoadError(const SnapshotFiles& files) {
    Session session = New();
    Read(session, 2);
    const Status loaded = files.Load(tokens_, session);
    EXPECT_EQ(session.length(), loaded ? static_cast<int64_t>(session.tokens().size()) : 0);
    return loaded ? ErrorCode::kInternal : loaded.error().code();
  }

  test::TempFolder folder_;
  test::OpenedEngine engine_;
  int64_t vocab_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<float> whole_;
};

TEST_F(Snapshot, SavedAndRestoredAtEveryPositionItGoesOnAsTheWhole) {
  const SnapshotFiles files = Files();
  Session writer = New(), reader = New();
  for (int64_t at = 1; at <= kTokens; ++at) {
    Read(writer, 1);
    ASSERT_TRUE(files.Save(writer)) << at;
    ASSERT_TRUE(files.Load(tokens_, reader)) << at;
    ASSERT_EQ(reader.tokens(), writer.tokens());
    ExpectGoesOn(reader);
  }
}

TEST_F(Snapshot, SavedAtOnceItIsTheSame) {
  Session writer = New(), reader = New();
  Read(writer, kTokens);
  ASSERT_TRUE(Files().Save(writer));
  ASSERT_TRUE(Files().Load(tokens_, reader));
  ExpectGoesOn(reader);
  EXPECT_EQ(fs::file_size(Files().LatentsPath()), sizeof(SnapshotHead) +
                                                      ((kTokens + 127) / 128) * sizeof(LatentsRecord) +
                                                      SequenceState::MlaBytes(engine_->spec(), kTokens));
}

TEST_F(Snapshot, SavingAgainWritesOnlyNewLatents) {
  Session writer = New();
  Read(writer, 20);
  ASSERT_TRUE(Files().Save(writer));
  const std::string before = ReadBytes(Files().LatentsPath());
  Read(writer, 10);
  ASSERT_TRUE(Files().Save(writer));
  const std::string after = ReadBytes(Files().LatentsPath());
  EXPECT_EQ(after.substr(0, before.size()), before);
  EXPECT_EQ(after.size() - before.size(), sizeof(LatentsRecord) + SequenceState::MlaBytes(engine_->spec(), 10));
}

// The process ended after latents were appended and before the state was replaced.
TEST_F(Snapshot, LatentsAheadOfTheStateAreNoDamage) {
  Session writer = New(), reader = New();
  Read(writer, 20);
  ASSERT_TRUE(Files().Save(writer));
  const std::string state = ReadBytes(Files().StatePath());
  Read(writer, 15);
  ASSERT_TRUE(Files().Save(writer));
  WriteBytes(Files().StatePath(), state);
  std::ofstream(Files().LatentsPath(), std::ios::binary | std::ios::app) << "half a record";
  ASSERT_TRUE(Files().Load(tokens_, reader));
  EXPECT_EQ(reader.length(), 20);
  ExpectGoesOn(reader);
  ASSERT_TRUE(Files().Save(writer));
  ASSERT_TRUE(Files().Load(tokens_, reader));
  EXPECT_EQ(reader.length(), 35);
}

TEST_F(Snapshot, ASessionThatWentAnotherWayReplacesWhatItDoesNotShare) {
  Session writer = New(), reader = New();
  Read(writer, 10);
  ASSERT_TRUE(Files().Save(writer));
  const auto kept = writer.Checkpoint();
  const std::vector<TokenId> other = RandomTokens(vocab_, 20, 77);
  ASSERT_TRUE(engine_->Feed(writer, other, Rows(nullptr, 0, vocab_), {}));
  ASSERT_TRUE(Files().Save(writer));
  ASSERT_TRUE(writer.Restore(**kept));
  Read(writer, 5);
  ASSERT_TRUE(Files().Save(writer));
  ASSERT_TRUE(Files().Load(tokens_, reader));
  EXPECT_EQ(reader.length(), 15);
  ExpectGoesOn(reader);
}

TEST_F(Snapshot, OtherTokensThanTheWantedOnesCountAsNothingKept) {
  Session writer = New();
  EXPECT_EQ(LoadError(Files()), ErrorCode::kNotFound);
  Read(writer, 9);
  ASSERT_TRUE(Files().Save(writer));
  tokens_[4] ^= 1;
  EXPECT_EQ(LoadError(Files()), ErrorCode::kNotFound);
  tokens_[4] ^= 1;
  tokens_.resize(8);
  EXPECT_EQ(LoadError(Files()), ErrorCode::kNotFound);
}

TEST_F(Snapshot, AnotherModelBackendOrVersionIsRefusedWithTheReason) {
  Session writer = New(), reader = New();
  Read(writer, 9);
  ASSERT_TRUE(Files().Save(writer));
  const auto message = [&](SnapshotIdentity identity) {
    const Status loaded = SnapshotFiles(folder_.path() + "/s", identity).Load(tokens_, reader);
    EXPECT_FALSE(loaded);
    EXPECT_TRUE(loaded || loaded.error().code() == ErrorCode::kUnsupported);
    return loaded ? "" : loaded.error().message();
  };
  SnapshotIdentity identity = Identity();
  identity.fingerprint += 1;
  EXPECT_NE(message(identity).find("another model"), std::string::npos);
  identity = Identity();
  identity.backend = "cpu/other";
  EXPECT_NE(message(identity).find("computed by " + Identity().backend), std::string::npos);
  Result<SequenceState> in_bf16 = SequenceState::Create(engine_->spec(), 100, DType::kBF16);
  ASSERT_TRUE(in_bf16);
  Session narrow(std::move(*in_bf16));
  const Status of_f32 = Files().Load(tokens_, narrow);
  ASSERT_FALSE(of_f32);
  EXPECT_NE(of_f32.error().message().find("made with --kv-dtype f32, this run has bf16"), std::string::npos);
  // Saved over by the other one, it is refused here.
  ASSERT_TRUE(SnapshotFiles(folder_.path() + "/s", identity).Save(writer));
  EXPECT_EQ(LoadError(Files()), ErrorCode::kUnsupported);
  std::string state = ReadBytes(Files().StatePath());
  state[7] = '2';
  WriteBytes(Files().StatePath(), state);
  EXPECT_EQ(LoadError(Files()), ErrorCode::kUnsupported);
}

// Every byte of the numbers and tokens, and some of each large part.
TEST_F(Snapshot, AnyChangedByteIsNoticed) {
  Session writer = New();
  Read(writer, 7);
  ASSERT_TRUE(Files().Save(writer));
  for (const std::string& path : {Files().StatePath(), Files().LatentsPath()}) {
    const std::string good = ReadBytes(path);
    const size_t numbers = sizeof(SnapshotHead) + sizeof(SnapshotBody) + 32;
    for (size_t at = 0; at < good.size(); at += at < numbers ? 1 : 1 + good.size() / 60) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      WriteBytes(path, bad);
      const ErrorCode code = LoadError(Files());
      ASSERT_TRUE(code == ErrorCode::kCorrupt || code == ErrorCode::kUnsupported) << path << " byte " << at;
    }
    WriteBytes(path, good);
  }
  EXPECT_EQ(LoadError(Files()), ErrorCode::kInternal);  // whole again: no error
}

TEST_F(Snapshot, AnyShorterOrLongerStateIsNoticed) {
  Session writer = New();
  Read(writer, 7);
  ASSERT_TRUE(Files().Save(writer));
  for (const std::string& path : {Files().StatePath(), Files().LatentsPath()}) {
    const std::string good = ReadBytes(path);
    for (size_t size = 0; size < good.size(); size += size < 200 ? 1 : 1 + good.size() / 40) {
      WriteBytes(path, good.substr(0, size));
      ASSERT_EQ(LoadError(Files()), ErrorCode::kCorrupt) << path << " of " << size << " bytes";
    }
    WriteBytes(path, good);
  }
  WriteBytes(Files().StatePath(), ReadBytes(Files().StatePath()) + "x");
  EXPECT_EQ(LoadError(Files()), ErrorCode::kCorrupt);
  // What is damaged is made good by the next save.
  ASSERT_TRUE(Files().Save(writer));
  EXPECT_EQ(LoadError(Files()), ErrorCode::kInternal);
}

TEST_F(Snapshot, AFolderInThePlaceOfAFileIsAnErrorAndNothingElse) {
  fs::create_directory(Files().StatePath());
  fs::create_directory(Files().LatentsPath());
  Session writer = New();
  Read(writer, 3);
  EXPECT_FALSE(Files().Save(writer));
  EXPECT_NE(LoadError(Files()), ErrorCode::kInternal);
}

}  // namespace
}  // namespace deltafin
