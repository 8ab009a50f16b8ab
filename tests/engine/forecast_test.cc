#include "engine/forecast.h"

#include <gmock/gmock.h>

namespace deltafin {
namespace {

using testing::HasSubstr;

// The released model's shape, its experts on four drives, none of them in memory.
ForecastFacts Large() {
  ForecastFacts f;
  f.moe_layers = 92, f.experts = 896, f.experts_per_token = 16;
  f.record_bytes = 17'547'264;
  f.slots = 1000;
  f.chunk = 4096;
  f.expert_rates = {13.6e9, 7.1e9, 7.1e9, 5.4e9};
  return f;
}

TEST(Forecast, OneTokenNeedsItsExperts) {
  const PromptForecast one = ForecastPrompt(Large(), 1);
  EXPECT_EQ(one.chunks, 1);
  EXPECT_NEAR(static_cast<double>(one.expert_bytes), 92 * 16 * 17'547'264.0, 17'547'264);
  EXPECT_NEAR(one.seconds, 92 * 16 * 17'547'264.0 / 33.2e9, 1e-3);
}

TEST(Forecast, ALongPromptNeedsEveryExpertOnceAChunk) {
  const double all = 92 * 896 * 17'547'264.0;
  const PromptForecast once = ForecastPrompt(Large(), 4000);
  EXPECT_EQ(once.chunks, 1);
  EXPECT_NEAR(static_cast<double>(once.expert_bytes) / all, 1, 1e-6);
  EXPECT_NEAR(once.seconds, all / 33.2e9, 0.01);
  ForecastFacts f = Large();
  f.slots = 0;
  f.chunk = 1000;
  EXPECT_EQ(ForecastPrompt(f, 4000).chunks, 4);
  EXPECT_NEAR(static_cast<double>(ForecastPrompt(f, 4000).expert_bytes) / all, 4, 1e-6);
}

TEST(Forecast, WhatIsInMemoryIsNotRead) {
  ForecastFacts f = Large();
  f.slots = f.resident = 92 * 896;
  EXPECT_EQ(ForecastPrompt(f, 4000).bytes(), 0u);
  f.resident = 92 * 448;
  f.chunk = 512;
  EXPECT_NEAR(static_cast<double>(ForecastPrompt(f, 4000).expert_bytes) / (92 * 448 * 17'547'264.0), 1, 1e-3)
      << "everything fits: the other half, once";
}

TEST(Forecast, StreamedWeightsAreReadForEveryChunk) {
  ForecastFacts f = Large();
  f.chunk = 100;
  f.streamed_dense_bytes = 1'000'000'000;
  f.dense_rate = 1e9;
  const PromptForecast beside = ForecastPrompt(f, 250);
  EXPECT_EQ(beside.dense_bytes, 3'000'000'000u);
  const double reading = static_cast<double>(beside.expert_bytes) / 33.2e9;
  EXPECT_NEAR(beside.seconds, reading + 3, 1e-6) << "from a drive that experts come from too";
  f.dense_apart = true;
  EXPECT_NEAR(ForecastPrompt(f, 250).seconds, std::max(reading, 3.0), 1e-6);
}

TEST(Forecast, SaysWhatOfItMustComeOverTheNetwork) {
  ForecastFacts f = Large();
  f.absent = 92 * 896 / 4;
  const PromptForecast some = ForecastPrompt(f, 1);
  EXPECT_NEAR(static_cast<double>(some.network_bytes), 92 * 16 * 17'547'264.0 / 4, 17'547'264);
  EXPECT_THAT(Describe(some), HasSubstr("GB of it must be fetched over the network first"));
  f.slots = 0;
  f.chunk = 1000;
  EXPECT_EQ(ForecastPrompt(f, 4000).network_bytes, uint64_t{92} * 224 * 17'547'264) << "what came once stays";
  EXPECT_EQ(ForecastPrompt(Large(), 4000).network_bytes, 0u);
}

TEST(Forecast, WithoutMeasuredDrivesNoTimeIsNamed) {
  ForecastFacts f = Large();
  f.expert_rates[2] = 0;
  const PromptForecast unknown = ForecastPrompt(f, 512);
  EXPECT_EQ(unknown.seconds, 0);
  EXPECT_GT(unknown.bytes(), 0u);
  EXPECT_THAT(Describe(unknown), HasSubstr("deltafin drives"));
  EXPECT_THAT(Describe(ForecastPrompt(Large(), 512)), HasSubstr("at the drives' measured speed"));
}

}  // namespace
}  // namespace deltafin
