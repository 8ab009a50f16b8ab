// Sessions that fork, go back and go on: every logit has the bits of a sequence read from its beginning.
#include "engine/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/platform.h"
#include "support/engine_runs.h"

namespace deltafin {
namespace {

constexpr int64_t kTokens = kIsSanitized ? 60 : 200;

std::vector<TokenId> RandomTokens(int64_t vocab, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

class SessionState : public testing::TestWithParam<std::string> {
 protected:
  SessionState()
      : engine_({.model = test::MicroFolder(),
                 .device = GetParam() == "reference" ? "reference" : "cpu",
                 .isa = GetParam() == "reference" ? "auto" : GetParam()}) {}
  void SetUp() override {
    ASSERT_TRUE(engine_.ok());
    vocab_ = engine_->spec().vocab_size;
    tokens_ = RandomTokens(vocab_, kTokens + 8, 5);
    other_ = RandomTokens(vocab_, 8, 6);
    Session session = New();
    Result<std::vector<float>> all = test::AllLogits(*engine_, session, tokens_, {kTokens});
    ASSERT_TRUE(all);
    whole_ = std::move(*all);
  }

  Session New() { return std::move(*engine_->NewSession()); }
  std::span<const TokenId> Tokens(int64_t first, int64_t count) const {
    return std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }
  void Read(Session& session, std::span<const TokenId> tokens) {
    ASSERT_TRUE(engine_->Feed(session, tokens, Rows(nullptr, 0, vocab_), {}));
  }
  // Feeds the next `count` tokens and compares their logits with those of the whole.
  void ExpectGoesOn(Session& session, int64_t count = 3) {
    const int64_t at = session.length();
    const Result<std::vector<float>> logits =
        test::AllLogits(*engine_, session, {tokens_.begin() + at, tokens_.begin() + at + count}, {1});
    ASSERT_TRUE(logits);
    ASSERT_EQ(std::memcmp(logits->data(), whole_.data() + at * vocab_, logits->size() * sizeof(float)), 0)
        << "from position " << at;
    ASSERT_TRUE(std::equal(session.tokens().begin(), session.tokens().end(), tokens_.begin()));
  }

  test::OpenedEngine engine_;
  int64_t vocab_ = 0;
  std::vector<TokenId> tokens_, other_;
  std::vector<float> whole_;  // logits of all tokens, read at once
};

TEST_P(SessionState, AForkAtEveryPositionGoesOnAsTheWholeAndLeavesTheOtherAlone) {
  Session session = New();
  for (int64_t at = 0; at <= kTokens; ++at) {
    Result<Session> fork = session.Fork();
    ASSERT_TRUE(fork);
    Read(*fork, other_);  // something else, behind the same prefix
    Result<Session> good = session.Fork();
    ASSERT_TRUE(good);
    ExpectGoesOn(*good);
    if (at < kTokens) ExpectGoesOn(session, 1);
  }
}

TEST_P(SessionState, TruncatedToEveryPositionItGoesOnAsTheWhole) {
  Session session = New();
  std::vector<std::shared_ptr<const SessionCheckpoint>> kept;
  for (int64_t at = 0; at <= kTokens; ++at) {
    kept.push_back(*session.Checkpoint());
    if (at < kTokens) Read(session, Tokens(at, 1));
  }
  for (int64_t at = kTokens; at >= 0; --at) {
    ASSERT_TRUE(session.TruncateTo(*kept[static_cast<size_t>(at)])) << at;
    EXPECT_EQ(session.length(), at);
    ExpectGoesOn(session);
    Read(session, other_);
    if (at + 3 < kTokens) {
      EXPECT_FALSE(session.TruncateTo(*kept.back()));  // not what it holds now
    }
  }
}

TEST_P(SessionState, RestoredInAnyOrderEveryCheckpointGoesOnAsTheWhole) {
  Session writer = New(), reader = New();
  std::vector<std::shared_ptr<const SessionCheckpoint>> kept;
  for (int64_t at = 0; at < kTokens; at += 7) {
    kept.push_back(*writer.Checkpoint());
    Read(writer, Tokens(at, 7));
  }
  std::mt19937 random(9);
  std::shuffle(kept.begin(), kept.end(), random);
  writer.Reset();
  for (const auto& checkpoint : kept) {
    ASSERT_TRUE(reader.Restore(*checkpoint));
    ExpectGoesOn(reader, 8);
    Read(reader, other_);
  }
}

TEST_P(SessionState, TwoInterleavedSessionsDoNotSeeEachOther) {
  Session one = New(), two = New();
  for (int64_t at = 0; at < kTokens; at += 5) {
    ExpectGoesOn(one, 5);
    Read(two, other_);
  }
  two.Reset();
  ExpectGoesOn(two, 20);
}

TEST_P(SessionState, ACheckpointSharesLatentsAndNotMore) {
  Session session = New();
  Read(session, Tokens(0, 150 < kTokens ? 150 : kTokens));
  const auto kept = session.Checkpoint();
  ASSERT_TRUE(kept);
  EXPECT_EQ((*kept)->state.kda_bytes(), SequenceState::KdaBytes(engine_->spec()) / 2);
  Read(session, Tokens(150 < kTokens ? 150 : 0, 40));
  EXPECT_EQ((*kept)->state.mla().pages()[0], session.state().mla().pages()[0]);
}

TEST_P(SessionState, ACheckpointLongerThanTheContextIsRefused) {
  test::OpenedEngine small({.model = test::MicroFolder(), .context = 10});
  ASSERT_TRUE(small.ok());
  Session session = New();
  Read(session, Tokens(0, 11));
  Result<Session> other = small->NewSession();
  ASSERT_TRUE(other);
  const Status restored = other->Restore(**session.Checkpoint());
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(other->length(), 0);
}

std::vector<std::string> Places() {
  std::vector<std::string> places = test::UsableIsas();
  places.push_back("reference");
  return places;
}

INSTANTIATE_TEST_SUITE_P(All, SessionState, testing::ValuesIn(Places()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace deltafin
