#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "model/sequence_state.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr uint64_t kGB = 1000000000;

// A K3-sized world on top of k3-nano's layer kinds: figures of the release (tensors_and_vision, 13.8).
struct World {
  ModelSpec spec;
  MemoryFacts facts;

  World() {
    const Result<Json> config = ReadJsonFile(test::RepoPath("models/k3-nano/config.json"));
    spec = *ModelSpec::FromConfig(*config, "config.json");
    facts.available = 128 * kGB;
    facts.program = 40'000'000;
    facts.slot_bytes = 17'551'360;
    facts.floor_slots = 16;
    facts.unit_bytes.assign(spec.layers.size() + 1, 1'267'744'256);
    facts.unit_bytes.front() = 2'341'213'184;
    facts.unit_bytes.back() = 2'348'840'000;
    facts.embedding_bytes = 2'348'810'240;
    facts.workspace_bytes = [](int64_t rows) { return static_cast<uint64_t>(rows) * 100'000; };
  }
  uint64_t all_dense() const {
    uint64_t sum = facts.embedding_bytes;
    for (const uint64_t b : facts.unit_bytes) sum += b;
    return sum;
  }
};

TEST(MemoryPlan, KeepsAllDenseWeightsWhenTheyFit) {
  const World w;
  const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = 64 * kGB}, w.spec, w.facts);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->streamed_dense_bytes, 0u);
  EXPECT_EQ(plan->resident_dense_bytes, w.all_dense());
  EXPECT_EQ(plan->residency.ring_buffers, 0);
  EXPECT_EQ(plan->expert_slots, plan->experts_total);
}

class Budget : public testing::TestWithParam<double> {};

TEST_P(Budget, IsNeverExceededAndNeverLeftUnused) {
  const World w;
  const auto budget = static_cast<uint64_t>(GetParam() * 1e9);
  const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = budget}, w.spec, w.facts);
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_LE(plan->total(), budget);
  // What is left is less than a slot, or everything has its place.
  if (plan->expert_slots < plan->experts_total) {
    EXPECT_GT(plan->total() + w.facts.slot_bytes, budget);
  }
  EXPECT_GE(plan->expert_slots, w.spec.num_experts_per_token);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Budget, testing::Values(5.5, 6, 8, 10, 12, 16, 18, 20, 24, 32, 64));

// Kept prefixes take a part of what is left, never what the plan cannot do without, and no more than they can hold.
TEST(MemoryPlan, PrefixCacheHasARowWhereThereIsRoom) {
  const World w;
  const uint64_t kda = SequenceState::KdaBytes(w.spec) / 2, latents = SequenceState::MlaBytes(w.spec, 4096);
  const Result<MemoryPlan> large =
      MemoryPlan::Make({.memory = 64 * kGB, .context = 4096, .prefix_checkpoints = 3}, w.spec, w.facts);
  ASSERT_TRUE(large);
  EXPECT_GE(large->prefix_cache_bytes, 3 * kda + latents);
  EXPECT_LE(large->prefix_cache_bytes, 3 * (kda + kMiB) + latents);
  EXPECT_LE(large->total(), 64 * kGB);
  const auto row = std::find_if(large->rows.begin(), large->rows.end(),
                                [](const MemoryRow& r) { return r.name == "prefix cache"; });
  ASSERT_NE(row, large->rows.end());
  EXPECT_EQ(row->bytes, large->prefix_cache_bytes);
  // The smallest budget that works without them works with them.
  for (uint64_t mb = 4000; mb < 7000; mb += 50) {
    const Result<MemoryPlan> without = MemoryPlan::Make({.memory = mb * 1000000}, w.spec, w.facts);
    const Result<MemoryPlan> with =
        MemoryPlan::Make({.memory = mb * 1000000, .prefix_checkpoints = 3}, w.spec, w.facts);
    ASSERT_EQ(with.has_value(), without.has_value()) << mb;
    if (with) {
      EXPECT_LE(with->total(), mb * 1000000);
    }
  }
}

TEST(MemoryPlan, StreamsSomeLayersWhenNotAllFit) {
  const World w;
  const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = 10 * kGB}, w.spec, w.facts);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->streamed_dense_bytes, 0u);
  EXPECT_GT(plan->resident_dense_bytes, 0u);
  EXPECT_GE(plan->residency.ring_buffers, 2);
  EXPECT_FALSE(plan->residency.embedding_resident);
  // The largest units are kept: they would make the ring's buffers large.
  EXPECT_TRUE(plan->residency.resident.front());
  EXPECT_TRUE(plan->residency.resident.back());
}

TEST(MemoryPlan, MoreMemoryNeverStreamsMore) {
  const World w;
  uint64_t last = UINT64_MAX;
  for (uint64_t gb = 6; gb < 30; ++gb) {
    const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = gb * kGB}, w.spec, w.facts);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->streamed_dense_bytes, last) << gb;
    last = plan->streamed_dense_bytes;
  }
}

// The number in the refusal is one that works, and little less does not.
class Floor : public testing::TestWithParam<EngineOptions> {};

TEST_P(Floor, IsNamedInTheRefusalAndWorks) {
  const World w;
  EngineOptions options = GetParam();
  options.memory = 1'000'000;
  const Result<MemoryPlan> refused = MemoryPlan::Make(options, w.spec, w.facts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  const std::string& message = refused.error().message();
  const size_t at = message.find("at least ");
  ASSERT_NE(at, std::string::npos) << message;
  const Result<uint64_t> floor = ParseSize(message.substr(at + 9, message.find(' ', at + 9) - at - 9));
  ASSERT_TRUE(floor) << message;
  options.memory = *floor;
  EXPECT_TRUE(MemoryPlan::Make(options, w.spec, w.facts)) << message;
  options.memory = *floor - 3 * kMiB;
  EXPECT_FALSE(MemoryPlan::Make(options, w.spec, w.facts));
}

INSTANTIATE_TEST_SUITE_P(Options, Floor,
                         testing::Values(EngineOptions{}, EngineOptions{.context = 4000}, EngineOptions{.chunk = 64},
                                         EngineOptions{.dense_mode = DenseMode::kResident},
                                         EngineOptions{.dense_mode = DenseMode::kStream},
                                         EngineOptions{.expert_cache = 2 * kGB}));

TEST(MemoryPlan, WithoutMemoryOptionTakesMostOfWhatIsAvailable) {
  World w;
  w.facts.available = 20 * kGB;
  const Result<MemoryPlan> plan = MemoryPlan::Make({}, w.spec, w.facts);
  ASSERT_TRUE(plan);
  EXPECT_GE(plan->budget, 16 * kGB);
  EXPECT_LT(plan->budget, 20 * kGB);
}

TEST(MemoryPlan, HonoursExpertCacheAndRefusesLessThanATokensExperts) {
  const World w;
  const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = 64 * kGB, .expert_cache = 1 * kGB}, w.spec, w.facts);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->expert_slots, static_cast<int64_t>(1 * kGB / w.facts.slot_bytes));
  const Result<MemoryPlan> refused = MemoryPlan::Make({.memory = 64 * kGB, .expert_cache = 1000}, w.spec, w.facts);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("--expert-cache"), std::string::npos);
  EXPECT_NE(refused.error().message().find("at least"), std::string::npos);
}

TEST(MemoryPlan, RefusesAContextBeyondTheModel) {
  const World w;
  const Result<MemoryPlan> plan = MemoryPlan::Make({.context = 4097}, w.spec, w.facts);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(plan.error().message().find("4096"), std::string::npos);
}

TEST(MemoryPlan, DescribesEveryRowAndTheTotal) {
  const World w;
  const Result<MemoryPlan> plan = MemoryPlan::Make({.memory = 64 * kGB}, w.spec, w.facts);
  ASSERT_TRUE(plan);
  const std::string text = plan->Describe();
  for (const char* row : {"program", "tokenizer", "dense weights", "expert slots", "MLA cache", "KDA state",
                          "activations", "reserve", "total"})
    EXPECT_NE(text.find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace deltafin
