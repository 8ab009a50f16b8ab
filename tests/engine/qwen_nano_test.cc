// A small model of text drafts for k3-nano: the same answers in fewer steps, and nothing of a draft stays behind.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/platform.h"
#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace deltafin {
namespace {

const std::string kDrafter = test::RepoPath("models/qwen3-nano");

EngineOptions With(const std::string& model) {
  return {.model = model, .draft = DraftMode::kQwen, .draft_model = kDrafter};
}

std::shared_ptr<const TokenBridge> BridgeTo(std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_shared<const TokenBridge>(std::move(tokenizer),
                                             *ByteLevelTokenizer::Load(kDrafter + "/tokenizer.json"));
}

constexpr const char* kPrompts[] = {
    "The capital of Japan is Tokyo. The capital of France is Paris. The capital of Italy is",
    "It is not down in any map; true places never are. The ship sailed on with the wind",
    "```python\ndef is_even(n):\n    \"\"\"Return True if n is even.\"\"\"\n    return"};

class Nano : public testing::Test {
 protected:
  struct Answer {
    std::vector<TokenId> tokens;
    std::optional<DraftReport> drafts;
  };

  void SetUp() override { ASSERT_TRUE(engine_.ok()) << engine_.error().message(); }

  std::unique_ptr<Drafting> Drafted(int64_t most) {
    DraftingSetup setup{.ngram = false, .bridge = bridge_, .limits = {.most = most, .always = true}};
    return std::move(*Drafting::ForPlan(*engine_, std::move(setup)));
  }

  Answer Generated(const char* prompt, Drafting* drafting, Session& session, const SamplingParams& sampling,
                   std::span<const TokenId> stops = {}) {
    const std::vector<TokenId> ids = tokenizer_->EncodeRaw(prompt);
    GenerationRequest request;
    request.prompt = ids;
    request.max_new = 32;
    request.drafting = drafting;
    request.sampling = sampling;
    request.stop_tokens = stops;
    const Result<GenerationResult> result = Generate(*engine_, session, engine_.monitor(), request);
    EXPECT_TRUE(result);
    return {result->tokens, result->drafts};
  }

  test::OpenedEngine engine_{With(test::NanoFolder())};
  const std::shared_ptr<const Tokenizer> tokenizer_ =
      std::make_shared<const Tokenizer>(*Tokenizer::Load(test::NanoFolder()));
  const std::shared_ptr<const TokenBridge> bridge_ = BridgeTo(tokenizer_);
};

TEST_F(Nano, AnswersAreThoseOfPlainDecodingAtEveryWidth) {
  const SamplingParams greedy, sampled{.temperature = 0.9, .top_p = 0.95, .seed = 3};
  for (const SamplingParams& sampling : {greedy, sampled}) {
    for (const char* prompt : kPrompts) {
      if (sampling.temperature > 0 && prompt != kPrompts[0]) continue;
      Result<Session> plain = engine_->NewSession();
      const Answer expected = Generated(prompt, nullptr, *plain, sampling);
      for (int64_t most = 1; most <= 7; ++most) {
        Result<Session> session = engine_->NewSession();
        const Answer drafted = Generated(prompt, Drafted(most).get(), *session, sampling);
        EXPECT_EQ(drafted.tokens, expected.tokens) << prompt << ", " << most;
        EXPECT_EQ(session->tokens(), plain->tokens());
        const Bytes got = session->state().CurrentKdaBytes(), wanted = plain->state().CurrentKdaBytes();
        EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
        EXPECT_EQ(drafted.drafts->drafters[0].name, "qwen");
        EXPECT_EQ(drafted.drafts->drafters[0].failure, "");
      }
    }
  }
}

TEST_F(Nano, AStopTokenInsideADraftEndsTheAnswerThere) {
  Result<Session> longest = engine_->NewSession();
  const std::vector<TokenId> all = Generated(kPrompts[0], nullptr, *longest, {}).tokens;
  for (size_t at = 2; at < 20; at += 3) {
    Result<Session> plain = engine_->NewSession(), session = engine_->NewSession();
    const std::vector<TokenId> stops = {all[at]};
    EXPECT_EQ(Generated(kPrompts[0], Drafted(7).get(), *session, {}, stops).tokens,
              Generated(kPrompts[0], nullptr, *plain, {}, stops).tokens);
    EXPECT_EQ(session->tokens(), plain->tokens());
  }
}

TEST_F(Nano, ItIsOftenRight) {
  const auto drafting = Drafted(4);
  uint64_t steps = 0, tokens = 0;
  for (const char* prompt : kPrompts) {
    Result<Session> session = engine_->NewSession();
    const Answer answer = Generated(prompt, drafting.get(), *session, {});
    steps += answer.drafts->all().steps;
    tokens += answer.drafts->all().tokens;
  }
  // A drafter that is wired wrongly, or whose weights are random, is hardly ever right.
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(steps), 1.5);
}

TEST_F(Nano, WithoutTextItDoesNotDraft) {
  DraftingSetup setup{.ngram = false, .limits = {.most = 3, .always = true}};
  const auto drafting = std::move(*Drafting::ForPlan(*engine_, std::move(setup)));
  Result<Session> session = engine_->NewSession();
  EXPECT_TRUE(Generated(kPrompts[0], drafting.get(), *session, {}).drafts->drafters.empty());
}

TEST(QwenPlan, HasARowForTheModelAndRefusesAnotherKind) {
  test::OpenedEngine engine(With(test::NanoFolder()));
  ASSERT_TRUE(engine.ok());
  EXPECT_TRUE(engine->plan().draft_model);
  EXPECT_EQ(engine->draft_kind(), DraftKind::kQwen);
  uint64_t row = 0;
  for (const MemoryRow& r : engine->plan().rows)
    if (r.name == "draft model") row = r.bytes;
  EXPECT_GT(row, uint64_t{7'107'968}) << "weights";
  EngineOptions other = With(test::NanoFolder());
  other.draft = DraftMode::kDspark;
  test::OpenedEngine refused(other);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("Qwen3"), std::string::npos) << refused.error().message();
  // It needs nothing of the model: streamed weights are no reason against it.
  other.draft = DraftMode::kQwen;
  other.dense_mode = DenseMode::kStream;
  EXPECT_TRUE(test::OpenedEngine(other).ok());
}

// k3-micro's vocabulary has room for the single bytes and the special tokens.
std::shared_ptr<const Tokenizer> ByteTokenizer() {
  TokenizerParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.push_back(std::string(1, static_cast<char>(byte)));
  return std::make_shared<const Tokenizer>(*Tokenizer::Create(std::move(parts)));
}

bool SameState(const Session& a, const Session& b) {
  const Bytes x = a.state().CurrentKdaBytes(), y = b.state().CurrentKdaBytes();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// Proposals are tried, accepted in part, cancelled or given up; random letters come between.
TEST(QwenRandomly, TenThousandStepsEndInTheStateOfPlainDecoding) {
  test::OpenedEngine engine([] {
    EngineOptions options = With(test::MicroFolder());
    options.context = 256;
    return options;
  }());
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const auto bridge = BridgeTo(ByteTokenizer());
  const auto drafter = std::move(*engine->NewQwenDrafter(bridge, 2));
  const int64_t vocab = engine->spec().vocab_size;
  Result<Session> session = engine->NewSession();
  Result<KdaReplay> replay = KdaReplay::Create(engine->spec(), 8);
  std::vector<float> logits(static_cast<size_t>(8 * vocab));
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  const int steps = kIsSanitized ? 300 : 10000;
  int64_t proposed = 0, cancelled = 0, compared = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t room = session->capacity() - session->length();
    if (room < 8) {
      Result<Session> plain = engine->NewSession();
      const std::vector<TokenId> tokens = session->tokens();
      ASSERT_TRUE(engine->Feed(*plain, tokens, {}, {}));
      ASSERT_TRUE(SameState(*session, *plain)) << "after " << step << " steps";
      const auto fresh = std::move(*engine->NewQwenDrafter(bridge, 2));
      std::array<TokenId, 2> here = {}, there = {};
      EXPECT_EQ(drafter->Propose(tokens, here)->count, fresh->Propose(tokens, there)->count);
      EXPECT_EQ(here, there);
      ++compared;
      session->Reset();
      continue;
    }
    std::vector<TokenId> tokens = {static_cast<TokenId>("etaoin shrdlu.\n"[below(15)])};
    std::vector<TokenId> history = session->tokens();
    history.push_back(tokens[0]);
    std::array<TokenId, 2> drafts = {' ', ' '};
    int64_t count = 2;
    if (below(3) == 0) {  // otherwise garbage
      const Result<Proposal> proposal = drafter->Propose(history, drafts);
      ASSERT_TRUE(proposal);
      count = proposal->count;
      proposed += count;
    }
    tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + count);
    const auto rows = static_cast<int64_t>(tokens.size());
    CancelSource cancel;
    const bool stops = below(7) == 0;
    if (stops) cancel.Cancel();
    const Status tried = engine->Try(*session, *replay, tokens, Rows(logits.data(), rows, vocab), cancel.token());
    ASSERT_EQ(tried.has_value(), !stops);
    cancelled += stops;
    if (stops || below(8) == 0) continue;  // given up: nothing of it stays
    ASSERT_TRUE(engine->Accept(*session, *replay, tokens, 1 + below(rows)));
  }
  EXPECT_GT(proposed, steps / 12);
  EXPECT_GT(cancelled, steps / 20);
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace deltafin
