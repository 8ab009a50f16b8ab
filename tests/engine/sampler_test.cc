#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace deltafin {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TokenId SampleOnce(const SamplingParams& params, const std::vector<float>& logits, int64_t usable = 1000) {
  Sampler sampler(params, static_cast<int64_t>(logits.size()), usable);
  const Result<TokenId> token = sampler.Sample(logits);
  EXPECT_TRUE(token);
  return token ? *token : -1;
}

TEST(GreedySampling, TakesTheLargestAndTheLowerIdOnTies) {
  EXPECT_EQ(SampleOnce({}, {1, 3, 2}), 1);
  EXPECT_EQ(SampleOnce({}, {1, 3, 3, 3}), 1);
  EXPECT_EQ(SampleOnce({}, {-5, -5}), 0);
}

TEST(GreedySampling, NeverChoosesPaddingRowsOrWhatIsNotANumber) {
  EXPECT_EQ(SampleOnce({}, {1, 2, 9}, /*usable=*/2), 1);
  EXPECT_EQ(SampleOnce({}, {kNaN, 2, 1}), 1);
  EXPECT_EQ(SampleOnce({}, {1, kNaN, 2}), 2);
}

TEST(Sampling, ReportsDamagedLogits) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature}, 2, 2);
    const Result<TokenId> token = sampler.Sample(std::vector<float>{kNaN, kNaN});
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(Sampling, SameSeedGivesTheSameTokens) {
  const std::vector<float> logits = {0.1f, 0.5f, 0.3f, 0.2f, 0.9f};
  const auto run = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed}, 5, 5);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(*sampler.Sample(logits));
    return tokens;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

// Frequencies over many draws against the softmax, computed here. 5 standard deviations of a binomial.
TEST(Sampling, FollowsTheSoftmaxAtTheGivenTemperature) {
  const std::vector<float> logits = {0, 1, 2, -1};
  const double temperature = 0.7;
  std::vector<double> expected;
  double total = 0;
  for (const float l : logits) total += expected.emplace_back(std::exp(l / temperature));
  std::vector<int> counts(4);
  const int draws = 40000;
  Sampler sampler({.temperature = temperature, .seed = 1}, 4, 4);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(*sampler.Sample(logits))];
  for (size_t i = 0; i < 4; ++i) {
    const double p = expected[i] / total;
    EXPECT_NEAR(counts[i], draws * p, 5 * std::sqrt(draws * p * (1 - p))) << "token " << i;
  }
}

std::vector<int> Histogram(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<int> counts(logits.size());
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SamplingParams p = params;
    p.seed = seed * 7919;
    ++counts[static_cast<size_t>(SampleOnce(p, logits))];
  }
  return counts;
}

TEST(Sampling, TopKKeepsTheKBest) {
  const std::vector<int> counts = Histogram({.temperature = 5, .top_k = 2}, {1, 3, 2, 0});
  EXPECT_EQ(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_GT(counts[2], 0);
  EXPECT_EQ(counts[3], 0);
}

TEST(Sampling, TopPKeepsTheShortestSufficientPrefix) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const std::vector<int> two = Histogram({.temperature = 1, .top_p = 0.6}, logits);
  EXPECT_GT(two[1], 0);
  EXPECT_EQ(two[2], 0);
  const std::vector<int> one = Histogram({.temperature = 1, .top_p = 0.4}, logits);
  EXPECT_EQ(one[0], 2000);
}

TEST(Sampling, MinPDropsWhatIsUnlikelyBesideTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const std::vector<int> counts = Histogram({.temperature = 1, .min_p = 0.5}, logits);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2], 0);
}

TEST(Penalties, PresenceAndFrequencyCountTheAnswerOnly) {
  Sampler sampler({.presence_penalty = 0.5, .frequency_penalty = 0.4}, 2, 2);
  sampler.ObservePrompt(std::vector<TokenId>{0, 0, 0});
  const std::vector<float> logits = {1.0f, 0.0f};
  EXPECT_EQ(*sampler.Sample(logits), 0);  // 1.0 against 0.0
  EXPECT_EQ(*sampler.Sample(logits), 0);  // 1.0 - 0.9 against 0.0
  EXPECT_EQ(*sampler.Sample(logits), 1);  // 1.0 - 1.3 against 0.0
}

TEST(Penalties, RepetitionCountsThePromptToo) {
  Sampler sampler({.repetition_penalty = 2}, 3, 3);
  sampler.ObservePrompt(std::vector<TokenId>{0});
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1.0f, 0.6f, -1.0f}), 1);
}

class BadParams : public testing::TestWithParam<SamplingParams> {};

TEST_P(BadParams, AreRefusedNamingTheOption) {
  const Status status = GetParam().Validate();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message().rfind("--", 0), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BadParams,
                         testing::Values(SamplingParams{.temperature = -1}, SamplingParams{.temperature = kNaN},
                                         SamplingParams{.top_p = 0}, SamplingParams{.top_p = 1.1},
                                         SamplingParams{.top_k = -1}, SamplingParams{.min_p = 2},
                                         SamplingParams{.presence_penalty = 3}, SamplingParams{.frequency_penalty = -3},
                                         SamplingParams{.repetition_penalty = 0}));

}  // namespace
}  // namespace deltafin
