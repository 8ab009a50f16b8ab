// Drafts that were drawn at random leave the model's distribution as it is: enumerated, not estimated, on a real model.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "base/platform.h"
#include "draft/rejection.h"
#include "engine/generation.h"
#include "support/engine_runs.h"

namespace deltafin {
namespace {

constexpr size_t kTokens = 3;  // that may be chosen: the first of the vocabulary
constexpr size_t kLength = 3;  // of the texts that are looked at
const std::vector<TokenId> kPrompt = {17, 65, 161};
const SamplingParams kSampling = {.temperature = 1.4};

using Text = std::vector<TokenId>;

// Every text of `length` tokens.
std::vector<Text> Texts(size_t length) {
  std::vector<Text> texts = {{}};
  for (size_t i = 0; i < length; ++i) {
    std::vector<Text> longer;
    for (const Text& text : texts)
      for (size_t token = 0; token < kTokens; ++token) {
        longer.push_back(text);
        longer.back().push_back(static_cast<TokenId>(token));
      }
    texts = std::move(longer);
  }
  return texts;
}

size_t Number(std::span<const TokenId> text) {
  size_t number = 0;
  for (const TokenId token : text) number = number * kTokens + static_cast<size_t>(token);
  return number;
}

// The model and a random drafter over it.
class Enumeration : public testing::Test {
 protected:
  test::OpenedEngine engine_{EngineOptions{.model = test::MicroFolder()}};
  const int64_t vocab_ = engine_->spec().vocab_size;

  std::vector<double> Sampled(std::span<const float> logits) {
    Sampler sampler(kSampling, vocab_, kTokens);
    std::vector<double> p(static_cast<size_t>(vocab_));
    EXPECT_TRUE(sampler.Distribution(logits, p));
    return p;
  }
  // By plain decoding: what may follow each text.
  std::vector<double> AfterPlain(const Text& text) {
    Result<Session> session = engine_->NewSession();
    Text all = kPrompt;
    all.insert(all.end(), text.begin(), text.end());
    const std::vector<float> logits = *test::AllLogits(*engine_, *session, all, {1});
    return Sampled(std::span(logits).last(static_cast<size_t>(vocab_)));
  }
  // By one step over the last token of the prompt and the drafts: a distribution for each row.
  std::vector<std::vector<double>> AfterDrafted(const Text& drafts) {
    Result<Session> session = engine_->NewSession();
    Result<KdaReplay> replay = KdaReplay::Create(engine_->spec(), 8);
    EXPECT_TRUE(test::AllLogits(*engine_, *session, {kPrompt[0], kPrompt[1]}, {2}));
    Text rows = {kPrompt[2]};
    rows.insert(rows.end(), drafts.begin(), drafts.end());
    std::vector<float> logits(rows.size() * static_cast<size_t>(vocab_));
    EXPECT_TRUE(
        engine_->Try(*session, *replay, rows, Rows(logits.data(), static_cast<int64_t>(rows.size()), vocab_), {}));
    std::vector<std::vector<double>> out;
    for (size_t r = 0; r < rows.size(); ++r)
      out.push_back(Sampled(std::span(logits).subspan(r * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_))));
    return out;
  }
  // What the drafter draws from after a text: something else than the model does.
  std::vector<float> DraftedFrom(const Text& text) const {
    std::mt19937 random(static_cast<uint32_t>(101 + 37 * text.size() + Number(text)));
    std::vector<float> q(static_cast<size_t>(vocab_));
    float sum = 0;
    for (size_t i = 0; i < kTokens; ++i) sum += q[i] = 0.02f + static_cast<float>(random() % 1000) / 1000;
    for (size_t i = 0; i < kTokens; ++i) q[i] /= sum;
    return q;
  }
};

TEST_F(Enumeration, EveryTextIsAsLikelyAsWithoutDrafts) {
  // Plainly: the product of the model's probabilities.
  std::vector<double> expected(27), got(27);
  std::vector<std::vector<double>> after[kLength];
  for (size_t length = 0; length < kLength; ++length)
    for (const Text& text : Texts(length)) after[length].push_back(AfterPlain(text));
  const auto chance = [&](const Text& text, size_t from) {
    double p = 1;
    for (size_t i = from; i < text.size(); ++i)
      p *= after[i][Number(std::span(text).first(i))][static_cast<size_t>(text[i])];
    return p;
  };
  for (const Text& text : Texts(kLength)) expected[Number(text)] = chance(text, 0);

  // With two drafts: all that the drafter may draw, and all decisions on it; what is emitted is continued plainly.
  const auto emit = [&](const Text& emitted, double probability) {
    for (const Text& text : Texts(kLength))
      if (std::equal(emitted.begin(), emitted.end(), text.begin()))
        got[Number(text)] += probability * chance(text, emitted.size());
  };
  double accepted = 0;
  for (const Text& drafts : Texts(2)) {
    std::vector<std::vector<double>> rows = AfterDrafted(drafts);
    double reached = 1;
    for (size_t i = 0; i < drafts.size(); ++i)
      reached *= static_cast<double>(DraftedFrom(
          Text(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(i)))[static_cast<size_t>(drafts[i])]);
    for (size_t i = 0; i <= drafts.size(); ++i) {
      Text emitted(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(i));
      double accept = 0;
      if (i < drafts.size()) {
        const std::vector<float> q = DraftedFrom(emitted);
        accept = AcceptChance(rows[i], q, drafts[i]);
        ToReplacement(rows[i], q);
      }
      accepted += reached * accept;
      emitted.push_back(0);
      for (size_t token = 0; token < kTokens; ++token) {
        emitted.back() = static_cast<TokenId>(token);
        emit(emitted, reached * (1 - accept) * rows[i][token]);
      }
      reached *= accept;
    }
  }
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-6) << i;  // q is float32
    sum += got[i];
  }
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_GT(accepted, 0.5) << "drafts are accepted in the enumeration";
  EXPECT_LT(accepted, 1.99) << "and rejected";
}

// The same through a request: two thousand seeds, a drafter that draws its tokens.
class DrawnDrafter final : public Drafter {
 public:
  DrawnDrafter(int64_t vocab, uint32_t seed) : random_(seed), q_(static_cast<size_t>(vocab)) {
    const float chances[] = {0.6f, 0.3f, 0.1f};
    std::copy_n(chances, kTokens, q_.begin());
  }
  std::string_view name() const override { return "drawn"; }
  bool costs_nothing() const override { return true; }
  int64_t most() const override { return 2; }
  Result<Proposal> Propose(std::span<const TokenId>, std::span<TokenId> out) override {
    Proposal proposal;
    for (TokenId& token : out) {
      const auto draw = static_cast<uint32_t>(random_() % 10);
      token = draw < 6 ? 0 : draw < 9 ? 1 : 2;
    }
    proposal.count = static_cast<int64_t>(out.size());
    return proposal;
  }
  std::span<const float> Distribution(int64_t) const override { return q_; }

 private:
  std::mt19937 random_;
  std::vector<float> q_;
};

TEST_F(Enumeration, ARequestWithDrawnDraftsFollowsTheModelsDistribution) {
  constexpr int kRuns = kIsSanitized ? 200 : 2000;
  std::vector<int> seen(27);
  for (int run = 0; run < kRuns; ++run) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<DrawnDrafter>(vocab_, static_cast<uint32_t>(run)));
    Result<std::unique_ptr<Drafting>> drafting =
        Drafting::Create(*engine_, std::move(drafters), {.rows = 3, .limits = {.most = 2, .always = true}});
    Result<Session> session = engine_->NewSession();
    GenerationRequest request;
    request.prompt = kPrompt;
    request.max_new = kLength;
    request.usable_vocab = kTokens;
    request.sampling = kSampling;
    request.sampling.seed = static_cast<uint64_t>(run) * 7919 + 13;
    request.drafting = drafting->get();
    const Result<GenerationResult> result = Generate(*engine_, *session, engine_.monitor(), request);
    ASSERT_TRUE(result);
    ++seen[Number(result->tokens)];
  }
  double chi_square = 0;
  for (const Text& text : Texts(kLength)) {
    double p = 1;
    for (size_t i = 0; i < kLength; ++i)
      p *= AfterPlain(Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i)))[static_cast<size_t>(text[i])];
    const double expected = p * kRuns;
    chi_square += (seen[Number(text)] - expected) * (seen[Number(text)] - expected) / expected;
  }
  EXPECT_LT(chi_square, 54.05) << "26 degrees of freedom, probability 0.001";
}

TEST(Rejection, WithoutAReplacementTheModelsOwnDistributionStays) {
  std::vector<double> p = {0.25, 0.75};
  const std::vector<float> q = {0.25f, 0.75f};
  ToReplacement(p, q);
  EXPECT_EQ(p, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(AcceptChance(p, q, 1), 1);
}

TEST(Rejection, DrawingNeverGivesWhatCannotBe) {
  const std::vector<double> p = {0, 0.5, 0, 0.5, 0};
  EXPECT_EQ(DrawFrom(p, 0), 1);
  EXPECT_EQ(DrawFrom(p, 0.4999), 1);
  EXPECT_EQ(DrawFrom(p, 0.5), 3);
  EXPECT_EQ(DrawFrom(p, 0.9999999999999999), 3);
}

}  // namespace
}  // namespace deltafin
