// Thousands of random batches: right bytes at every cache size, one read per expert at a time, whatever fails or stops.
#include <random>

#include "cache/cache_fixture.h"

namespace deltafin {
namespace {

using test::ExpertCacheTest;

constexpr int32_t kLayers = 4;
constexpr int32_t kExperts = 12;

std::vector<int32_t> RandomBatch(std::mt19937& random) {
  std::vector<int32_t> experts;
  const uint32_t chance = 1 + random() % 8;
  for (int32_t e = 0; e < kExperts; ++e) {
    if (random() % 8 < chance) experts.push_back(e);
  }
  return experts;
}

class ExpertCacheSizes : public ExpertCacheTest, public testing::WithParamInterface<int64_t> {};
INSTANTIATE_TEST_SUITE_P(FromOneToAll, ExpertCacheSizes, testing::Values(1, 2, 3, 5, 8, 12, 20, 47, 48, 60));

TEST_P(ExpertCacheSizes, EveryBatchGetsTheRightBytes) {
  as_engines_do_ = GetParam() % 2 == 0;
  Make(GetParam(), {.seed = 9, .max_delay_us = 20});
  std::mt19937 random(17);
  uint64_t wanted = 0;
  for (int batch = 0; batch < 300; ++batch) {
    const auto layer = static_cast<int32_t>(random() % kLayers);
    const std::vector<int32_t> experts = RandomBatch(random);
    wanted += experts.size();
    Run(layer, experts);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_LE(cache_->resident(), cache_->slots());
  }
  EXPECT_EQ(source_->most_at_once_per_key(), 1);
  EXPECT_EQ(source_->writes_into_pinned(), 0);
  EXPECT_EQ(cache_->counters().hits + cache_->counters().misses, wanted);
  EXPECT_EQ(cache_->counters().misses, static_cast<uint64_t>(source_->fetches()));
  if (GetParam() >= kLayers * kExperts) {
    EXPECT_EQ(source_->fetches(), kLayers * kExperts);
  }
}

TEST_P(ExpertCacheSizes, PrefetchedOrNotEveryBatchGetsTheRightBytesAndEveryReadIsCounted) {
  as_engines_do_ = GetParam() % 2 == 1;
  Make(GetParam(), {.seed = 10, .max_delay_us = 20, .max_started = 6}, 64, GetParam() / 3);
  std::mt19937 random(18);
  for (int batch = 0; batch < 300; ++batch) {
    const auto layer = static_cast<int32_t>(random() % kLayers);
    const std::vector<int32_t> experts = RandomBatch(random);
    cache_->Begin(layer, experts);
    cache_->Prefetch((layer + 1) % kLayers, RandomBatch(random));
    Drain(layer, experts);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_LE(cache_->resident(), cache_->slots());
  }
  for (int32_t layer = 0; layer < kLayers; ++layer) Run(layer, test::Range(0, kExperts));
  EXPECT_EQ(source_->most_at_once_per_key(), 1);
  EXPECT_EQ(source_->writes_into_pinned(), 0);
  source_->WaitUntilIdle();
  const ExpertCacheCounters c = cache_->counters();
  EXPECT_EQ(c.demand_bytes + c.prefetch_useful_bytes + c.prefetch_wasted_bytes,
            static_cast<uint64_t>(source_->fetches() - source_->cancelled()) * source_->record_bytes());
  EXPECT_LE(c.prefetch_late_bytes, c.prefetch_useful_bytes);
}

// Fails, stops and abandons at random, keeps some pins across batches.
class ExpertCacheStress : public ExpertCacheTest, public testing::WithParamInterface<uint32_t> {
 protected:
  void RunOne(int32_t layer, const std::vector<int32_t>& experts, std::mt19937& random) {
    cache_->Begin(layer, experts);
    if (random() % 2 == 0) cache_->Prefetch(static_cast<int32_t>(random() % kLayers), RandomBatch(random));
    const size_t give_up_after = random() % 4 == 0 ? random() % (experts.size() + 1) : experts.size();
    CancelSource cancel;
    for (size_t i = 0; i < give_up_after; ++i) {
      if (random() % 200 == 0) cancel.Cancel();
      Result<ExpertCache::Ready> ready = cache_->Next(cancel.token());
      if (!ready) break;
      const ExpertKey key{layer, experts[static_cast<size_t>(ready->position)]};
      ASSERT_EQ(ready->pin.key(), key);
      ASSERT_TRUE(source_->Holds(ready->pin.weights(), key));
      if (kept_.size() < 2 && random() % 30 == 0) {
        source_->Pinned(ready->pin.weights());
        kept_.push_back(std::move(ready->pin));
      }
    }
    cache_->Abandon();
  }

  void DropPins() {
    for (const ExpertPin& pin : kept_) {
      ASSERT_TRUE(source_->Holds(pin.weights(), pin.key()));
      source_->Unpinned(pin.weights());
    }
    kept_.clear();
  }

  std::vector<ExpertPin> kept_;
};
INSTANTIATE_TEST_SUITE_P(Seeds, ExpertCacheStress, testing::Values(1u, 2u, 3u, 4u));

TEST_P(ExpertCacheStress, SurvivesFailuresCancellationAndLongPins) {
  std::mt19937 random(GetParam());
  const int64_t slots = 5 + random() % 10;  // kept pins take two
  as_engines_do_ = GetParam() % 2 == 0;
  Make(slots, {.seed = GetParam(), .threads = 3, .max_delay_us = 15, .max_started = 4}, 64, (slots - 3) / 2);
  source_->SetFailureProbability(0.02);
  for (int batch = 0; batch < 1000; ++batch) {
    RunOne(static_cast<int32_t>(random() % kLayers), RandomBatch(random), random);
    ASSERT_FALSE(HasFatalFailure());
    if (random() % 10 == 0) DropPins();
  }
  DropPins();
  source_->SetFailureProbability(0);
  for (int32_t layer = 0; layer < kLayers; ++layer) Run(layer, test::Range(0, kExperts));
  EXPECT_EQ(source_->most_at_once_per_key(), 1);
  EXPECT_EQ(source_->writes_into_pinned(), 0);
  EXPECT_LE(cache_->resident(), cache_->slots());
}

}  // namespace
}  // namespace deltafin
