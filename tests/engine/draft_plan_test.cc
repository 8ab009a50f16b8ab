// Room for drafting in the memory plan: a row of its own, taken from what is left, refused by name where it was asked
// for.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "engine/memory_plan.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

constexpr uint64_t kGB = 1000000000;
constexpr uint64_t kDraftModel = 5 * kGB;

// Weights of K3's sizes under k3-nano's layers: 14 GB of dense weights.
struct World {
  ModelSpec spec = *ModelSpec::FromConfig(*ReadJsonFile(test::RepoPath("models/k3-nano/config.json")), "config.json");
  MemoryFacts facts;

  explicit World(bool draft_model = false) {
    facts.available = 128 * kGB;
    facts.program = 40'000'000;
    facts.slot_bytes = 17'551'360;
    facts.floor_slots = 16;
    facts.unit_bytes.assign(spec.layers.size() + 1, 1'267'744'256);
    facts.unit_bytes.back() = 1'348'840'000;
    facts.embedding_bytes = 2'348'810'240;
    facts.workspace_bytes = [](int64_t rows) { return static_cast<uint64_t>(rows) * 100'000; };
    if (draft_model) facts.draft_model_bytes = [](int64_t, int64_t) { return kDraftModel; };
  }
  Result<MemoryPlan> Plan(EngineOptions options) const { return MemoryPlan::Make(options, spec, facts); }
};

const MemoryRow* Row(const MemoryPlan& plan, const char* name) {
  const auto row = std::find_if(plan.rows.begin(), plan.rows.end(), [&](const MemoryRow& r) { return r.name == name; });
  return row == plan.rows.end() ? nullptr : &*row;
}

TEST(DraftPlan, AutoTakesWhatSevenDraftsNeed) {
  const World w;
  const Result<MemoryPlan> plan = w.Plan({.memory = 64 * kGB, .draft = DraftMode::kAuto});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->draft_rows, 8);
  ASSERT_NE(Row(*plan, "drafting"), nullptr);
  EXPECT_EQ(Row(*plan, "drafting")->bytes, plan->draft_bytes);
  EXPECT_GT(plan->draft_bytes, 0u);
  EXPECT_LE(plan->total(), 64 * kGB);
  EXPECT_EQ(w.Plan({.memory = 64 * kGB, .draft = DraftMode::kAuto, .max_drafts = 2})->draft_rows, 3);
}

TEST(DraftPlan, WithoutDraftingThereIsNoRow) {
  const World w;
  const Result<MemoryPlan> plan = w.Plan({.memory = 64 * kGB});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->draft_rows, 0);
  EXPECT_EQ(Row(*plan, "drafting"), nullptr);
}

TEST(DraftPlan, WithoutRoomAutoIsOffAndSaysSo) {
  const World w;
  uint64_t floor = kGB;  // the smallest budget that works
  while (!w.Plan({.memory = floor})) floor += kGB / 1000;
  const Result<MemoryPlan> plan = w.Plan({.memory = floor, .draft = DraftMode::kAuto});
  ASSERT_TRUE(plan) << "auto never needs more";
  EXPECT_EQ(plan->draft_rows, 0);
  ASSERT_NE(Row(*plan, "drafting"), nullptr);
  EXPECT_NE(Row(*plan, "drafting")->note.find("off"), std::string::npos);
  EXPECT_LE(plan->total(), floor);
}

TEST(DraftPlan, ByNameItIsPartOfTheFloor) {
  const World w;
  uint64_t floor = kGB;
  while (!w.Plan({.memory = floor})) floor += kGB / 1000;
  const Result<MemoryPlan> refused = w.Plan({.memory = floor, .context = 0, .draft = DraftMode::kNgram});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().message().find("--draft"), std::string::npos) << refused.error().message();
  const Result<MemoryPlan> plan = w.Plan({.memory = floor + kGB / 10, .draft = DraftMode::kNgram});
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->draft_rows, 8);
  EXPECT_GE(plan->chunk, 8) << "its rows are computed in one step";
}

TEST(DraftPlan, AStepHasNoMoreRowsThanAChunk) {
  const World w;
  EXPECT_EQ(w.Plan({.memory = 64 * kGB, .chunk = 4, .draft = DraftMode::kAuto})->draft_rows, 4);
  EXPECT_EQ(w.Plan({.memory = 64 * kGB, .chunk = 1, .draft = DraftMode::kAuto})->draft_rows, 0);
  EXPECT_EQ(w.Plan({.memory = 64 * kGB, .chunk = 4, .draft = DraftMode::kNgram})->draft_rows, 4);
  const Result<MemoryPlan> refused =
      w.Plan({.memory = 64 * kGB, .chunk = 4, .draft = DraftMode::kNgram, .max_drafts = 5});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("--chunk"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(w.Plan({.memory = 64 * kGB, .draft = DraftMode::kAuto, .max_drafts = 8}));
}

TEST(DraftPlan, ADraftModelIsKeptWhereAllDenseWeightsAre) {
  const World w(/*draft_model=*/true);
  const Result<MemoryPlan> large = w.Plan({.memory = 64 * kGB, .draft = DraftMode::kAuto});
  ASSERT_TRUE(large);
  EXPECT_TRUE(large->draft_model);
  EXPECT_EQ(Row(*large, "draft model")->bytes, kDraftModel);
  EXPECT_LE(large->total(), 64 * kGB);
  for (const uint64_t budget : {8 * kGB, 14 * kGB, 18 * kGB, 20 * kGB, 24 * kGB}) {
    const Result<MemoryPlan> plan = w.Plan({.memory = budget, .draft = DraftMode::kAuto});
    ASSERT_TRUE(plan) << budget << ": " << plan.error().message();
    EXPECT_LE(plan->total(), budget);
    if (plan->draft_model) {
      EXPECT_EQ(plan->streamed_dense_bytes, 0u) << budget;
    } else {
      EXPECT_NE(Row(*plan, "draft model")->note.find("off"), std::string::npos);
    }
  }
}

// Kept beginnings take room of their own: as many checkpoints as the plan gives room to.
TEST(DraftPlan, WhateverTheBudgetADraftModelCostsNoDenseWeightTheirPlace) {
  World with(/*draft_model=*/true), without;
  // Scratch that a chunk of a few hundred rows needs is no small part of what is left.
  for (World* w : {&with, &without})
    w->facts.workspace_bytes = [](int64_t rows) { return static_cast<uint64_t>(rows) * 3'000'000; };
  int kept = 0;
  for (const int64_t checkpoints : {0, 10'000'000}) {
    for (uint64_t budget = kGB; budget <= 40 * kGB; budget += kGB / 8) {
      SCOPED_TRACE(testing::Message() << checkpoints << " checkpoints, " << budget);
      EngineOptions options{.memory = budget, .draft = DraftMode::kAuto};
      options.prefix_checkpoints = checkpoints;
      const Result<MemoryPlan> plan = with.Plan(options);
      ASSERT_EQ(plan.has_value(), without.Plan(options).has_value()) << "auto never needs more";
      if (!plan) continue;
      EXPECT_LE(plan->total(), budget);
      EXPECT_EQ(plan->prefix_cache_bytes > 0, checkpoints > 0);
      kept += plan->draft_model ? 1 : 0;
      EXPECT_TRUE(!plan->draft_model || (plan->streamed_dense_bytes == 0 && plan->residency.embedding_resident))
          << plan->Describe();
    }
  }
  EXPECT_GT(kept, 100);
}

TEST(DraftPlan, ADraftModelByNameNeedsTheOutputMatrixInMemory) {
  const World w(/*draft_model=*/true);
  const Result<MemoryPlan> streamed =
      w.Plan({.memory = 64 * kGB, .dense_mode = DenseMode::kStream, .draft = DraftMode::kDspark});
  ASSERT_FALSE(streamed);
  EXPECT_NE(streamed.error().message().find("output matrix"), std::string::npos) << streamed.error().message();
  const Result<MemoryPlan> small = w.Plan({.memory = 6 * kGB, .draft = DraftMode::kDspark});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code(), ErrorCode::kOutOfMemory);
  const Result<MemoryPlan> plan = w.Plan({.memory = 64 * kGB, .draft = DraftMode::kDspark});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->draft_model && plan->residency.resident.back());
}

}  // namespace
}  // namespace deltafin
