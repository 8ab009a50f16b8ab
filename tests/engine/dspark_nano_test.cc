// The trained drafter of k3-nano against its PyTorch reference, and in use: the same answers in fewer steps.
//
// dspark-nano/expected.golden was computed from the exported file, with every operator's output rounded to BF16
// ("bf16") and in float32 throughout ("f32"); tests/data/README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/golden_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

const std::string kDrafter = test::RepoPath("models/k3-nano-dspark");
const std::string kGolden = test::RepoPath("tests/data/dspark-nano/expected.golden");

// Absorbed and expanded attention differ by BF16 roundings of values up to about 4: as in the specification's example,
// A.9.
constexpr float kBf16Tolerance = 0.05f, kConfidenceTolerance = 0.07f;
constexpr float kFloatTolerance = 1e-4f;  // relative to the largest value

EngineOptions WithDrafter() {
  return {.model = test::NanoFolder(), .draft = DraftMode::kDspark, .draft_model = kDrafter};
}

float LargestDifference(const float* got, const std::vector<float>& expected) {
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(got[i] - expected[i]));
  return largest;
}

float Largest(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

class Golden : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(kGolden)) << kGolden;
    golden_.emplace(kGolden);
    engine_.emplace(WithDrafter());
    ASSERT_TRUE(engine_->ok()) << engine_->error().message();
  }

  std::vector<TokenId> Prompt(const std::string& p) const {
    const std::vector<int64_t>& ids = golden_->Ints(p + ".prompt_ids");
    return {ids.begin(), ids.end()};
  }

  // Reads the recorded taps of prompt `p`.
  std::unique_ptr<DsparkDrafter> AfterTaps(const std::string& p, bool round) {
    std::unique_ptr<DsparkDrafter> drafter = std::move(*(*engine_)->NewDsparkDrafter(0, round));
    const std::vector<TokenId> prompt = Prompt(p);
    const int64_t hidden = (*engine_)->spec().hidden_size;
    const ConstRows taps(golden_->Floats(p + ".taps").data(), static_cast<int64_t>(prompt.size()), 5 * hidden);
    const int32_t layers[] = {0, 2, 3, 5, 7};
    for (int64_t t = 0; t < 5; ++t) drafter->OnLayer(layers[t], taps.Columns(t * hidden, hidden));
    drafter->OnTokens(prompt, taps.rows, {});
    return drafter;
  }

  // The recorded anchor's proposal; out gets the tokens.
  Proposal Propose(DsparkDrafter& drafter, const std::string& p, std::vector<TokenId>* out) {
    std::vector<TokenId> history = Prompt(p);
    history.push_back(static_cast<TokenId>(golden_->Ints(p + ".anchor")[0]));
    out->resize(7);
    const Result<Proposal> proposal = drafter.Propose(history, *out);
    EXPECT_TRUE(proposal);
    return *proposal;
  }

  // The context, part by part, and the block's output within `tolerance` of what was recorded (times its largest
  // value).
  void ExpectContext(const DsparkDrafter& drafter, const std::string& at, float tolerance) {
    for (int64_t l = 0; l < 5; ++l) {
      const std::vector<float>& latent = golden_->Floats(Cat(at, "latent.", l));
      const std::vector<float>& key = golden_->Floats(Cat(at, "rope_key.", l));
      const ConstRows rows = drafter.Context(l);
      ASSERT_EQ(static_cast<size_t>(rows.rows) * 64, latent.size());
      const float limit = tolerance * std::max(Largest(latent), Largest(key));
      for (int64_t r = 0; r < rows.rows; ++r) {
        EXPECT_LE(LargestDifference(rows.row(r), {latent.begin() + r * 64, latent.begin() + (r + 1) * 64}), limit);
        EXPECT_LE(LargestDifference(rows.row(r) + 64, {key.begin() + r * 16, key.begin() + (r + 1) * 16}), limit);
      }
    }
    const std::vector<float>& hidden = golden_->Floats(at + "hidden");
    EXPECT_LE(LargestDifference(drafter.block_output().data, hidden), tolerance * Largest(hidden));
  }

  std::optional<test::GoldenFile> golden_;
  std::optional<test::OpenedEngine> engine_;
};

TEST_F(Golden, InFloat32TheForwardPassIsThatOfPyTorch) {
  for (const std::string p : {"0", "1", "2", "3"}) {
    SCOPED_TRACE("prompt " + p);
    const auto drafter = AfterTaps(p, /*round=*/false);
    std::vector<TokenId> tokens;
    const Proposal proposal = Propose(*drafter, p, &tokens);
    ExpectContext(*drafter, p + ".f32.", kFloatTolerance);
    for (size_t k = 0; k < 7; ++k) {
      if (golden_->Floats(p + ".f32.margins")[k] < 0.01f) break;  // what follows may differ too
      EXPECT_EQ(tokens[k], golden_->Ints(p + ".f32.tokens")[k]) << k;
      EXPECT_NEAR(proposal.belief[k], 1 / (1 + std::exp(-golden_->Floats(p + ".f32.confidence")[k])), 1e-3) << k;
    }
  }
  const std::vector<float>& logits = golden_->Floats("0.f32.logits");
  const auto drafter = AfterTaps("0", /*round=*/false);
  std::vector<TokenId> tokens;
  Propose(*drafter, "0", &tokens);
  EXPECT_LE(LargestDifference(drafter->block_logits().data, logits), kFloatTolerance * Largest(logits));
}

TEST_F(Golden, WithRoundingItIsWithinTheTolerancesOfTheExample) {
  for (const std::string p : {"0", "1", "2", "3"}) {
    SCOPED_TRACE("prompt " + p);
    const auto drafter = AfterTaps(p, /*round=*/true);
    std::vector<TokenId> tokens;
    const Proposal proposal = Propose(*drafter, p, &tokens);
    ExpectContext(*drafter, p + ".bf16.", kBf16Tolerance);
    for (size_t k = 0; k < 7; ++k) {
      if (golden_->Floats(p + ".bf16.margins")[k] < 0.14f) break;  // twice the tolerance of a logit
      EXPECT_EQ(tokens[k], golden_->Ints(p + ".bf16.tokens")[k]) << k;
      const float logit = std::log(proposal.belief[k] / (1 - proposal.belief[k]));
      EXPECT_NEAR(logit, golden_->Floats(p + ".bf16.confidence")[k], kConfidenceTolerance) << k;
    }
  }
}

// The engine hands the drafter the rows that it was trained on: the running sum, not what AttnRes mixes from it.
TEST_F(Golden, TheRowsOfTheModelAreThoseThatWereRecorded) {
  class Recorder final : public SessionObserver {
   public:
    void OnLayer(int32_t layer, const ConstRows& sum) override {
      const int32_t layers[] = {0, 2, 3, 5, 7};
      const auto* it = std::find(std::begin(layers), std::end(layers), layer);
      if (it == std::end(layers)) return;
      for (int64_t r = 0; r < sum.rows; ++r)
        std::copy_n(sum.row(r), sum.width, rows.data() + r * 5 * sum.width + (it - layers) * sum.width);
    }
    void OnTokens(std::span<const TokenId>, int64_t count, CancelToken) override { accepted += count; }
    std::vector<float> rows;
    int64_t accepted = 0;
  };
  for (const std::string p : {"0", "1", "2", "3"}) {
    const std::vector<float>& expected = golden_->Floats(p + ".taps");
    Recorder recorder;
    recorder.rows.resize(expected.size());
    Result<Session> session = (*engine_)->NewSession();
    session->SetObserver(&recorder);
    const std::vector<TokenId> prompt = Prompt(p);
    ASSERT_TRUE((*engine_)->Feed(*session, prompt, {}, {}));
    EXPECT_EQ(recorder.accepted, static_cast<int64_t>(prompt.size()));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(recorder.rows[i], expected[i], std::abs(expected[i]) / 128 + 1e-3f) << "prompt " << p << " " << i;
  }
}

struct Answer {
  std::vector<TokenId> tokens;
  std::optional<DraftReport> drafts;
};

class InUse : public Golden {
 protected:
  Answer Generated(const std::vector<TokenId>& prompt, Drafting* drafting, Session& session, SamplingParams sampling) {
    GenerationRequest request;
    request.prompt = prompt;
    request.max_new = 64;
    request.drafting = drafting;
    request.sampling = sampling;
    const Result<GenerationResult> result = Generate(**engine_, session, engine_->monitor(), request);
    EXPECT_TRUE(result);
    return {result->tokens, result->drafts};
  }
};

TEST_F(InUse, AnswersAreThoseOfPlainDecodingAtEveryWidth) {
  const SamplingParams greedy, sampled{.temperature = 0.9, .top_p = 0.95, .seed = 3};
  for (const SamplingParams& sampling : {greedy, sampled}) {
    for (const std::string p : {"0", "2", "3"}) {
      Result<Session> plain = (*engine_)->NewSession();
      const Answer expected = Generated(Prompt(p), nullptr, *plain, sampling);
      for (int64_t most = 1; most <= 7; ++most) {
        DraftingSetup setup{.ngram = false, .limits = {.most = most, .always = true}};
        const auto drafting = std::move(*Drafting::ForPlan(**engine_, std::move(setup)));
        Result<Session> session = (*engine_)->NewSession();
        const Answer drafted = Generated(Prompt(p), drafting.get(), *session, sampling);
        EXPECT_EQ(drafted.tokens, expected.tokens) << p << ", " << most;
        EXPECT_EQ(session->tokens(), plain->tokens());
        const Bytes got = session->state().CurrentKdaBytes(), wanted = plain->state().CurrentKdaBytes();
        EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
        EXPECT_EQ(drafted.drafts->drafters[0].failure, "");
        EXPECT_GT(drafted.drafts->drafters[0].tried(), 0u);
      }
    }
  }
}

TEST_F(InUse, ItIsOftenRight) {
  DraftingSetup setup{.ngram = false, .limits = {.most = 7, .always = true}};
  const auto drafting = std::move(*Drafting::ForPlan(**engine_, std::move(setup)));
  uint64_t steps = 0, tokens = 0;
  for (const std::string p : {"0", "1", "2", "3"}) {
    Result<Session> session = (*engine_)->NewSession();
    const Answer answer = Generated(Prompt(p), drafting.get(), *session, {});
    steps += answer.drafts->all().steps;
    tokens += answer.drafts->all().tokens;
  }
  // A drafter that is wired wrongly, or whose weights are random, is hardly ever right.
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(steps), 1.5);
}

TEST_F(InUse, AConversationThatGoesOnIsDraftedFurther) {
  const auto drafting =
      std::move(*Drafting::ForPlan(**engine_, {.ngram = false, .limits = {.most = 3, .always = true}}));
  Result<Session> session = (*engine_)->NewSession();
  for (const std::string p : {"3", "0"}) {
    const Answer answer = Generated(Prompt(p), drafting.get(), *session, {});
    EXPECT_GT(answer.drafts->drafters[0].proposals, 0u) << p;
  }
  // A session that somebody else has read begins in the middle for this drafter.
  Result<Session> other = (*engine_)->NewSession();
  ASSERT_TRUE((*engine_)->Feed(*other, Prompt("1"), {}, {}));
  EXPECT_EQ(Generated(Prompt("0"), drafting.get(), *other, {}).drafts->drafters[0].proposals, 0u);
}

}  // namespace
}  // namespace deltafin
