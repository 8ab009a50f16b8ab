// cache_fixture.h: an expert cache over a fake source, and batches run the way the model runs them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cache/expert_cache.h"
#include "support/fake_expert_source.h"

namespace deltafin::test {

inline std::vector<int32_t> Range(int32_t first, int32_t count) {
  std::vector<int32_t> experts;
  for (int32_t e = first; e < first + count; ++e) experts.push_back(e);
  return experts;
}

class ExpertCacheTest : public testing::Test {
 protected:
  void Make(int64_t slots, const FakeExpertOptions& options = {}, int64_t max_batch = 64, int64_t prefetch_slots = 0) {
    cache_.reset();
    source_ = std::make_unique<FakeExpertSource>(options);
    Result<std::unique_ptr<ExpertCache>> cache = ExpertCache::Create(
        *source_,
        {.slots = slots,
         .max_batch = max_batch,
         .most_in_transit = as_engines_do_ ? 2 : 0,
         .prefetch_slots = prefetch_slots},
        as_engines_do_ ? CreateFrequencyPolicy({.slots = slots, .layers = 32, .experts = 128, .experts_per_token = 4})
                       : CreateLayerLruPolicy(slots, 32),
        clock_);
    ASSERT_TRUE(cache) << cache.error().message();
    cache_ = std::move(*cache);
  }

  // Takes every expert of the open batch and checks its bytes while it is pinned.
  void Drain(int32_t layer, const std::vector<int32_t>& experts) {
    std::vector<bool> seen(experts.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      Result<ExpertCache::Ready> ready = cache_->Next({});
      ASSERT_TRUE(ready) << ready.error().message();
      const auto position = static_cast<size_t>(ready->position);
      ASSERT_LT(position, experts.size());
      ASSERT_FALSE(seen[position]) << "position " << position << " came twice";
      seen[position] = true;
      const ExpertKey key{layer, experts[position]};
      ASSERT_EQ(ready->pin.key(), key);
      source_->Pinned(ready->pin.weights());
      ASSERT_TRUE(source_->Holds(ready->pin.weights(), key));
      source_->Unpinned(ready->pin.weights());
    }
  }
  void Run(int32_t layer, const std::vector<int32_t>& experts) {
    cache_->Begin(layer, experts);
    Drain(layer, experts);
  }

  // The policy that engines use, and few experts in transit. Otherwise what leaves is easily foretold.
  bool as_engines_do_ = false;
  SteadyClock clock_;
  std::unique_ptr<FakeExpertSource> source_;
  std::unique_ptr<ExpertCache> cache_;
};

}  // namespace deltafin::test
