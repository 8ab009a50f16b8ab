// Kept beginnings: the longest one is used, whole; the budget holds; answers are those of a sequence read from its
// start.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "base/platform.h"
#include "engine/generation.h"
#include "support/engine_runs.h"

namespace deltafin {
namespace {

using Tokens = std::vector<TokenId>;

class Prefixes : public testing::Test {
 protected:
  Prefixes() : engine_({.model = test::MicroFolder(), .context = 4096}) {}
  void SetUp() override { ASSERT_TRUE(engine_.ok()); }

  Tokens Random(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    Tokens tokens(static_cast<size_t>(count));
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % static_cast<uint32_t>(engine_->spec().vocab_size));
    return tokens;
  }
  Session New() { return std::move(*engine_->NewSession()); }
  // Bytes of a checkpoint without its latents.
  uint64_t Own(int64_t tokens) {
    return SequenceState::KdaBytes(engine_->spec()) / 2 + static_cast<uint64_t>(tokens) * 4;
  }
  uint64_t Page() { return SequenceState::MlaBytes(engine_->spec(), MlaCache::kPagePositions); }

  GenerationResult Ask(Session& session, PrefixCache* cache, const Tokens& prompt, int64_t max_new,
                       uint64_t conversation = 1, const Tokens& answered = {}, SamplingParams sampling = {}) {
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = max_new;
    request.prefix_cache = cache;
    request.conversation = conversation;
    request.answered = answered;
    request.sampling = sampling;
    Result<GenerationResult> result = Generate(*engine_, session, engine_.monitor(), request);
    EXPECT_TRUE(result) << result.error().message();
    return result ? std::move(*result) : GenerationResult{};
  }
  Tokens Anew(const Tokens& prompt, int64_t max_new, SamplingParams sampling = {}) {
    Session session = New();
    return Ask(session, nullptr, prompt, max_new, 1, {}, sampling).tokens;
  }
  void Keep(PrefixCache& cache, const Tokens& tokens, uint64_t conversation, const std::vector<float>& logits = {}) {
    Session session = New();
    ASSERT_TRUE(engine_->Feed(session, tokens, Rows(nullptr, 0, engine_->spec().vocab_size), {}));
    ASSERT_TRUE(cache.Keep(session, conversation, logits));
  }
  static Tokens First(const Tokens& tokens, size_t count) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  test::OpenedEngine engine_;
};

TEST_F(Prefixes, TheLongestOneIsTakenAndNeverOneThatDiffers) {
  PrefixCache cache(100 << 20);
  const Tokens tokens = Random(40, 1);
  Tokens other = First(tokens, 30);
  other[29] ^= 1;
  Keep(cache, First(tokens, 10), 1);
  Keep(cache, First(tokens, 20), 1);
  Keep(cache, other, 1);
  EXPECT_EQ(cache.Match(tokens, 1)->position(), 20);
  EXPECT_EQ(cache.Match(First(tokens, 20), 1)->position(), 10);  // all of it, but its logits are not known
  EXPECT_EQ(cache.Match(First(tokens, 19), 1)->position(), 10);
  EXPECT_EQ(cache.Match(First(tokens, 9), 1), nullptr);
  EXPECT_EQ(cache.Match(Random(40, 2), 1), nullptr);
  Keep(cache, First(tokens, 20), 1, {1, 2, 3});
  EXPECT_EQ(cache.Match(First(tokens, 20), 1)->logits, (std::vector<float>{1, 2, 3}));
}

TEST_F(Prefixes, SharedPagesCountOnce) {
  PrefixCache cache(100 << 20);
  const Tokens tokens = Random(140, 1);
  Session session = New();
  const Rows none(nullptr, 0, engine_->spec().vocab_size);
  ASSERT_TRUE(engine_->Feed(session, First(tokens, 100), none, {}));
  ASSERT_TRUE(cache.Keep(session, 1, {}));
  EXPECT_EQ(cache.bytes(), Own(100) + Page());
  ASSERT_TRUE(cache.Keep(session, 1, {}));  // known already
  EXPECT_EQ(cache.size(), 1u);
  ASSERT_TRUE(engine_->Feed(session, std::span(tokens).subspan(100), none, {}));
  ASSERT_TRUE(cache.Keep(session, 1, {}));
  EXPECT_EQ(cache.bytes(), Own(100) + Own(140) + 2 * Page());
}

TEST_F(Prefixes, TheBudgetHoldsAndTheConversationUsedLeastRecentlyLosesFirst) {
  const Tokens a = Random(30, 1), b = Random(30, 2), c = Random(30, 3);
  const uint64_t one = Own(30) + Page();
  PrefixCache cache(4 * one);
  Keep(cache, First(a, 20), 1);
  Keep(cache, First(b, 20), 2);
  Keep(cache, a, 1);
  Keep(cache, b, 2);
  ASSERT_EQ(cache.size(), 4u);
  EXPECT_NE(cache.Match(a, 1), nullptr);  // 1 is used after 2
  Keep(cache, c, 3);
  EXPECT_LE(cache.bytes(), cache.budget());
  EXPECT_EQ(cache.Match(First(b, 25), 3), nullptr);  // the older one of 2 went
  Tokens b_more = b;
  b_more.push_back(1);
  EXPECT_NE(cache.Match(b_more, 2), nullptr);
  EXPECT_NE(cache.Match(First(a, 25), 1), nullptr);
  EXPECT_EQ(cache.counters().evicted, 1u);
}

TEST_F(Prefixes, WhatDoesNotFitAloneIsNotKept) {
  PrefixCache none(0), small(Own(30) + Page() / 2);
  Keep(none, Random(30, 1), 1);
  Keep(small, Random(30, 1), 1);
  EXPECT_EQ(none.bytes() + small.bytes(), 0u);
  EXPECT_EQ(none.size() + small.size(), 0u);
  Session session = New();
  EXPECT_EQ(Ask(session, &none, Random(30, 1), 5).tokens, Anew(Random(30, 1), 5));
}

TEST_F(Prefixes, AnExactRepeatReadsNothingAndAnswersTheSame) {
  PrefixCache cache(100 << 20);
  const Tokens prompt = Random(50, 1);
  Session session = New();
  const GenerationResult first = Ask(session, &cache, prompt, 12);
  EXPECT_EQ(first.prompt_tokens_read, 50);
  EXPECT_EQ(first.tokens, Anew(prompt, 12));
  for (Session* again : {&session, new Session(New())}) {
    const GenerationResult repeat = Ask(*again, &cache, prompt, 12);
    EXPECT_EQ(repeat.prompt_tokens_read, 0);
    EXPECT_EQ(repeat.tokens, first.tokens);
    if (again != &session) delete again;
  }
}

TEST_F(Prefixes, LongPromptsAreKeptAtEveryInterval) {
  constexpr int64_t kEvery = 900;
  PrefixCache cache(100 << 20, kEvery);
  const Tokens prompt = Random(kEvery + 1000, 1);
  Session session = New();
  Ask(session, &cache, prompt, 1);
  Tokens other = prompt;
  other[static_cast<size_t>(kEvery + 700)] ^= 1;
  Session fresh = New();
  const GenerationResult result = Ask(fresh, &cache, other, 2);
  EXPECT_EQ(result.prompt_tokens_read, 1000);
  EXPECT_EQ(result.tokens, Anew(other, 2));
}

// Every turn's prompt is the whole history; the answers are as if it had been read anew every time.
TEST_F(Prefixes, ThirtyTurnsReadEveryTokenOnce) {
  PrefixCache cache(100 << 20);
  Tokens history = Random(kIsSanitized ? 300 : 3000, 1);
  int64_t known = 0;
  for (uint32_t turn = 0; turn < 30; ++turn) {
    const Tokens message = Random(5 + turn % 17, 100 + turn);
    history.insert(history.end(), message.begin(), message.end());
    Session session = New();  // nothing but the cache is left between turns
    const GenerationResult result = Ask(session, &cache, history, 6);
    const auto now = static_cast<int64_t>(history.size());
    EXPECT_LE(result.prompt_tokens_read, now - known) << "turn " << turn;
    if (turn % 10 == 9) {
      EXPECT_EQ(result.tokens, Anew(history, 6)) << "turn " << turn;
    }
    history.insert(history.end(), result.tokens.begin(), result.tokens.end());
    known = static_cast<int64_t>(history.size()) - 1;  // the last token of an answer was never read
  }
}

TEST_F(Prefixes, ThreeInterleavedConversationsAreEachReadOnce) {
  PrefixCache cache(100 << 20);
  Session session = New();
  std::vector<Tokens> histories = {Random(200, 1), Random(150, 2), Random(300, 3)};
  std::vector<int64_t> known(3, 0);
  for (uint32_t turn = 0; turn < 6; ++turn) {
    for (size_t c = 0; c < 3; ++c) {
      const Tokens message = Random(9, 10 * turn + static_cast<uint32_t>(c));
      histories[c].insert(histories[c].end(), message.begin(), message.end());
      const GenerationResult result = Ask(session, &cache, histories[c], 5, c);
      EXPECT_LE(result.prompt_tokens_read, static_cast<int64_t>(histories[c].size()) - known[c]);
      EXPECT_EQ(result.tokens, Anew(histories[c], 5));
      histories[c].insert(histories[c].end(), result.tokens.begin(), result.tokens.end());
      known[c] = static_cast<int64_t>(histories[c].size()) - 1;
    }
  }
  EXPECT_EQ(cache.counters().evicted, 0u);
}

// An answer that was interrupted anywhere goes on with the tokens that it would have had.
TEST_F(Prefixes, AnAnswerGoesOnWhereItWasInterrupted) {
  const Tokens prompt = Random(20, 1);
  for (const SamplingParams& sampling :
       {SamplingParams{},
        SamplingParams{.temperature = 1.3, .frequency_penalty = 0.5, .repetition_penalty = 1.2, .seed = 9}}) {
    const Tokens whole = Anew(prompt, 24, sampling);
    for (size_t cut = 0; cut <= whole.size(); ++cut) {
      Session session = New();
      const GenerationResult result = Ask(session, nullptr, prompt, 24, 1, First(whole, cut), sampling);
      EXPECT_EQ(result.tokens, whole) << cut;
      EXPECT_EQ(session.length(), cut < whole.size() ? 20 + 23 : 0);
    }
  }
}

}  // namespace
}  // namespace deltafin
