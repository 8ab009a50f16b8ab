#include <gtest/gtest.h>

#include "cache/eviction_policy.h"
#include "cache/expert_usage.h"

namespace deltafin {
namespace {

bool Any(int32_t) { return true; }

std::unique_ptr<EvictionPolicy> Make(int64_t slots, int32_t layers, const ExpertUsage* prior = nullptr) {
  return CreateFrequencyPolicy(
      {.slots = slots, .layers = layers, .experts = 16, .experts_per_token = 2, .prior = prior});
}

TEST(FrequencyPolicy, EvictsWhatWasWantedLeastOften) {
  const auto policy = Make(3, 1);
  policy->Began(0, 2);
  for (int32_t slot = 0; slot < 3; ++slot) policy->Inserted(slot, {0, slot}, 1);
  for (int i = 0; i < 4; ++i) {
    policy->Began(0, 2);
    policy->Used(2, 1);
    if (i < 2) policy->Used(0, 1);
  }
  EXPECT_EQ(policy->Victim(Any), 1);
  EXPECT_EQ(policy->Victim([](int32_t slot) { return slot != 1; }), 0);
  EXPECT_EQ(policy->Victim([](int32_t slot) { return slot == 2; }), 2);
  EXPECT_EQ(policy->Victim([](int32_t) { return false; }), -1);
}

TEST(FrequencyPolicy, RemembersWhatLeft) {
  const auto policy = Make(2, 1);
  for (int i = 0; i < 6; ++i) {
    policy->Began(0, 2);
    if (i == 0) policy->Inserted(0, {0, 7}, 1);
    if (i > 0) policy->Used(0, 1);
  }
  policy->Removed(0);
  policy->Began(0, 2);
  policy->Inserted(0, {0, 1}, 1);
  policy->Inserted(1, {0, 7}, 1);
  EXPECT_EQ(policy->Victim(Any), 0);
}

TEST(FrequencyPolicy, APromptThatWantsEverythingAlikeChangesNoOrder) {
  const auto policy = Make(4, 1);
  policy->Began(0, 2);
  for (int32_t slot = 0; slot < 4; ++slot) policy->Inserted(slot, {0, slot}, 1);
  for (const int32_t used : {3, 1, 3, 2, 3, 1, 3}) {
    policy->Began(0, 2);
    policy->Used(used, 1);
  }
  for (int prompt = 0; prompt < 20; ++prompt) {
    policy->Began(0, 8);
    for (int32_t slot = 0; slot < 4; ++slot) policy->Used(slot, 2);
  }
  std::vector<int32_t> order;
  for (int i = 0; i < 4; ++i) {
    order.push_back(policy->Victim(Any));
    policy->Removed(order.back());
  }
  EXPECT_EQ(order, (std::vector<int32_t>{0, 2, 1, 3}));
  EXPECT_EQ(policy->Victim(Any), -1);
}

TEST(FrequencyPolicy, APromptTellsWhatItsRowsWanted) {
  const auto policy = Make(3, 1);
  policy->Began(0, 60);
  const int32_t rows[] = {29, 1, 30};
  for (int32_t slot = 0; slot < 3; ++slot) policy->Inserted(slot, {0, slot}, rows[slot]);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Began(0, 2);
  policy->Used(1, 1);
  EXPECT_EQ(policy->Victim(Any), 1) << "one token outweighs no prompt";
}

TEST(FrequencyPolicy, AmongEqualsTakesFromTheLayerThatComesUpLast) {
  const auto policy = Make(3, 3);
  for (int32_t layer = 0; layer < 3; ++layer) {
    policy->Began(layer, 2);
    policy->Inserted(layer, {layer, 4}, 1);
  }
  EXPECT_EQ(policy->Victim(Any), 2);
  policy->Began(0, 2);
  policy->Used(0, 1);
  EXPECT_EQ(policy->Victim(Any), 0);
}

TEST(FrequencyPolicy, WhatAGuessExpectsStaysUntilItsLayersNextBatch) {
  const auto policy = Make(2, 2);
  policy->Began(0, 2);
  policy->Inserted(0, {0, 1}, 1);
  policy->Inserted(1, {0, 2}, 1);
  for (int i = 0; i < 3; ++i) {
    policy->Began(0, 2);
    policy->Used(1, 1);
  }
  EXPECT_EQ(policy->Victim(Any), 0);
  policy->Expected(0);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Began(1, 2);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Began(0, 2);
  EXPECT_EQ(policy->Victim(Any), 0);
}

TEST(FrequencyPolicy, AGuessThatWasNotWantedCountsForNothing) {
  const auto policy = Make(2, 1);
  policy->Began(0, 2);
  policy->Inserted(0, {0, 1}, 1);
  policy->Inserted(1, {0, 2}, 0);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Used(1, 1);
  policy->Began(0, 2);
  policy->Used(1, 1);
  EXPECT_EQ(policy->Victim(Any), 0);
}

TEST(FrequencyPolicy, CountsOfEarlierRunsDecideAtTheBeginning) {
  ExpertUsage usage(2, 16, 1);
  for (int i = 0; i < 100; ++i) usage.Add(0, std::vector<int32_t>{3});
  for (int i = 0; i < 50; ++i) usage.Add(0, std::vector<int32_t>{5});
  for (int i = 0; i < 150; ++i) usage.Add(1, std::vector<int32_t>{i % 16});
  const auto policy = Make(3, 2, &usage);
  policy->Inserted(0, {0, 3}, 0);
  policy->Inserted(1, {0, 5}, 0);
  policy->Inserted(2, {1, 8}, 0);
  EXPECT_EQ(policy->Victim(Any), 2);
  policy->Removed(2);
  EXPECT_EQ(policy->Victim(Any), 1);
}

}  // namespace
}  // namespace deltafin
