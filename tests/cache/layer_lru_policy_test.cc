#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cache/eviction_policy.h"

namespace deltafin {
namespace {

bool Any(int32_t) { return true; }

TEST(LayerLruPolicy, EvictsTheLeastRecentlyUsedOfALayer) {
  const auto policy = CreateLayerLruPolicy(4, 1);
  for (int32_t slot = 0; slot < 4; ++slot) policy->Inserted(slot, {0, slot}, 1);
  EXPECT_EQ(policy->Victim(Any), 0);
  policy->Used(0, 1);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Used(1, 1);
  policy->Used(2, 1);
  EXPECT_EQ(policy->Victim(Any), 3);
}

TEST(LayerLruPolicy, TakesFromTheLayerWithTheMostSlots) {
  const auto policy = CreateLayerLruPolicy(5, 3);
  policy->Inserted(0, {0, 7}, 1);
  policy->Inserted(1, {1, 7}, 1);
  policy->Inserted(2, {1, 8}, 1);
  policy->Inserted(3, {2, 7}, 1);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Removed(1);
  policy->Inserted(1, {0, 8}, 1);
  EXPECT_EQ(policy->Victim(Any), 0);
}

TEST(LayerLruPolicy, AmongEqualLayersTakesFromTheOneUsedLast) {
  const auto policy = CreateLayerLruPolicy(6, 3);
  for (int32_t slot = 0; slot < 6; ++slot) policy->Inserted(slot, {slot / 2, slot}, 1);
  EXPECT_EQ(policy->Victim(Any), 4);
  policy->Used(0, 1);
  EXPECT_EQ(policy->Victim(Any), 1);
}

TEST(LayerLruPolicy, SkipsWhatMayNotBeEvicted) {
  const auto policy = CreateLayerLruPolicy(3, 2);
  policy->Inserted(0, {0, 0}, 1);
  policy->Inserted(1, {1, 1}, 1);
  policy->Inserted(2, {1, 2}, 1);
  EXPECT_EQ(policy->Victim([](int32_t slot) { return slot != 1; }), 2);
  EXPECT_EQ(policy->Victim([](int32_t slot) { return slot == 0; }), 0);
  EXPECT_EQ(policy->Victim([](int32_t) { return false; }), -1);
}

TEST(LayerLruPolicy, ForgetsRemovedSlots) {
  const auto policy = CreateLayerLruPolicy(3, 5);
  EXPECT_EQ(policy->Victim(Any), -1);
  policy->Inserted(2, {0, 2}, 1);
  policy->Inserted(1, {0, 1}, 1);
  policy->Removed(2);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Inserted(2, {4, 9}, 1);
  policy->Removed(1);
  EXPECT_EQ(policy->Victim(Any), 2);
}

// Experts of a made-up model: each layer has its favourites, and a token repeats some of what the one before it wanted.
constexpr int32_t kLayers = 12;
constexpr int32_t kExperts = 64;
constexpr size_t kPerToken = 4;
constexpr int64_t kWorkingSet = kLayers * static_cast<int64_t>(kPerToken);
using Trace = std::vector<std::vector<ExpertKey>>;  // batches, layer after layer, token after token

Trace MakeTrace(int tokens) {
  std::mt19937 random(29);
  std::vector<double> weights;
  for (int32_t e = 0; e < kExperts; ++e) weights.push_back(1.0 / (3 + e));
  std::discrete_distribution<int32_t> skewed(weights.begin(), weights.end());
  std::vector<std::set<int32_t>> before(kLayers);
  Trace trace;
  for (int token = 0; token < tokens; ++token) {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      std::set<int32_t> wanted;
      for (const int32_t expert : before[static_cast<size_t>(layer)])
        if (random() % 5 < 2) wanted.insert(expert);
      while (wanted.size() < kPerToken) wanted.insert((skewed(random) * 37 + layer * 11) % kExperts);
      std::vector<ExpertKey> batch;
      for (const int32_t expert : wanted) batch.push_back({layer, expert});
      trace.push_back(std::move(batch));
      before[static_cast<size_t>(layer)] = std::move(wanted);
    }
  }
  return trace;
}

int64_t HitsOf(EvictionPolicy& policy, int64_t slots, const Trace& trace) {
  std::map<ExpertKey, int32_t> held;
  std::vector<ExpertKey> keys(static_cast<size_t>(slots));
  int64_t hits = 0;
  for (const std::vector<ExpertKey>& batch : trace) {
    std::vector<ExpertKey> misses;
    for (const ExpertKey key : batch) {
      const auto it = held.find(key);
      if (it == held.end()) {
        misses.push_back(key);
        continue;
      }
      ++hits;
      policy.Used(it->second, 1);
    }
    for (const ExpertKey key : misses) {
      auto slot = static_cast<int32_t>(held.size());
      if (slot == slots) {
        slot = policy.Victim(Any);
        policy.Removed(slot);
        held.erase(keys[static_cast<size_t>(slot)]);
      }
      policy.Inserted(slot, key, 1);
      keys[static_cast<size_t>(slot)] = key;
      held[key] = slot;
    }
  }
  return hits;
}

// Plain least recently used over all layers, as a list of keys.
int64_t HitsOfPlainLru(int64_t slots, const Trace& trace) {
  std::list<ExpertKey> by_use;  // latest first
  std::map<ExpertKey, std::list<ExpertKey>::iterator> held;
  int64_t hits = 0;
  for (const std::vector<ExpertKey>& batch : trace) {
    std::vector<ExpertKey> misses;
    for (const ExpertKey key : batch) {
      const auto it = held.find(key);
      if (it == held.end()) {
        misses.push_back(key);
        continue;
      }
      ++hits;
      by_use.splice(by_use.begin(), by_use, it->second);
    }
    for (const ExpertKey key : misses) {
      if (static_cast<int64_t>(held.size()) == slots) {
        held.erase(by_use.back());
        by_use.pop_back();
      }
      by_use.push_front(key);
      held[key] = by_use.begin();
    }
  }
  return hits;
}

TEST(LayerLruPolicy, HitsMoreThanPlainLruBelowOneTokensExpertsAndAsMuchAbove) {
  const Trace trace = MakeTrace(800);
  const auto wanted = static_cast<int64_t>(trace.size() * kPerToken);
  int64_t fewer_slots = 0;
  for (const int64_t slots : {4, 8, 12, 24, 36, 44, 48, 56, 64, 96, 144, 192, 288, 384, 576, 700, 768}) {
    const int64_t hits = HitsOf(*CreateLayerLruPolicy(slots, kLayers), slots, trace);
    const int64_t plain = HitsOfPlainLru(slots, trace);
    RecordProperty("hits_" + std::to_string(slots), static_cast<int>(hits));
    if (slots < kWorkingSet) {
      EXPECT_GT(hits, plain) << slots << " slots";
    } else {
      EXPECT_GE(static_cast<double>(hits), 0.97 * static_cast<double>(plain)) << slots << " slots";
    }
    EXPECT_GE(static_cast<double>(hits), 0.98 * static_cast<double>(fewer_slots)) << slots << " slots";
    EXPECT_EQ(HitsOf(*CreateLayerLruPolicy(slots, kLayers), slots, trace), hits) << "not deterministic";
    fewer_slots = hits;
  }
  // Everything fits: only the first use of an expert misses.
  EXPECT_GE(fewer_slots, wanted - kLayers * kExperts);
}

}  // namespace
}  // namespace deltafin
