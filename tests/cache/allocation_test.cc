// Nothing is allocated between the creation of a cache and its end, by whatever thread.
#include <gtest/gtest.h>

#include "cache/cache_fixture.h"
#include "support/count_allocations.h"

namespace deltafin {
namespace {

// Answers inside Fetch(), which the interface allows.
class ImmediateSource final : public ExpertSource {
 public:
  uint64_t record_bytes() const override { return 1000; }
  uint64_t slot_bytes() const override { return 1000; }
  uint64_t slot_alignment() const override { return 1; }
  void Fetch(ExpertKey key, std::byte* slot, IoPriority, IoTag, Done done) override {
    *slot = static_cast<std::byte>(key.expert);
    ExpertWeights weights;
    weights.w1.packed = reinterpret_cast<const uint8_t*>(slot);
    done(weights);
  }
  IoTag NewTag() override { return ++last_tag_; }
  void Cancel(IoTag) override {}
  void Raise(IoTag, IoPriority) override {}

 private:
  IoTag last_tag_ = 0;
};

class CacheAllocations : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Slots, CacheAllocations, testing::Values(1, 5, 16, 100));

TEST_P(CacheAllocations, BeginNextAndPinsAllocateNothing) {
  ImmediateSource source;
  const SteadyClock clock;
  const auto cache = ExpertCache::Create(
      source, {.slots = GetParam(), .max_batch = 16, .prefetch_slots = GetParam() / 3},
      CreateFrequencyPolicy({.slots = GetParam(), .layers = 7, .experts = 400, .experts_per_token = 16}), clock);
  ASSERT_TRUE(cache);
  std::vector<int32_t> experts = test::Range(0, 16);
  int wrong = 0;
  const int64_t before = test::Allocations();
  for (int32_t batch = 0; batch < 100; ++batch) {
    for (int32_t& expert : experts) expert += 3;
    (*cache)->Begin(batch % 7, experts);
    (*cache)->Prefetch((batch + 1) % 7, experts);
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto ready = (*cache)->Next({});
      wrong += !ready || *ready->pin.weights().w1.packed != static_cast<uint8_t>(ready->pin.key().expert);
    }
    (*cache)->Abandon();
  }
  EXPECT_EQ(test::Allocations() - before, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(CountAllocations, CountsThem) {
  const int64_t before = test::Allocations();
  const std::unique_ptr<std::vector<int>> vector = std::make_unique<std::vector<int>>(100);
  EXPECT_EQ(test::Allocations() - before, 2);
  EXPECT_EQ(vector->size(), 100u);
}

}  // namespace
}  // namespace deltafin
