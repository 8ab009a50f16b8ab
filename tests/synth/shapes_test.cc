#include "synth/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "spec/release_facts.h"
#include "support/test_data.h"
#include "synth/synth.h"

namespace deltafin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec Make(const SynthShape& shape) {
  Result<ModelSpec> spec = MakeSynthSpec(shape);
  EXPECT_TRUE(spec) << spec.error().message();
  return spec ? *spec : ModelSpec{};
}

std::vector<int> MlaLayers(const ModelSpec& spec) {
  std::vector<int> layers;
  for (size_t l = 0; l < spec.layers.size(); ++l)
    if (spec.layers[l].attention == AttentionKind::kMla) layers.push_back(static_cast<int>(l));
  return layers;
}

// Published byte totals of the release: all shards but the vision tower and the projector.
TEST(SynthPlan, OfK3HasThePublishedByteTotals) {
  const SynthPlan plan = PlanSynth(Make({.name = "k3"}));
  EXPECT_EQ(plan.expert_bytes, 1446456066048u);
  EXPECT_EQ(plan.dense_bytes, 113509540864u);
  EXPECT_EQ(plan.shards, 94);
  EXPECT_EQ(release::kDenseBytes, plan.dense_bytes);
  EXPECT_EQ(release::kBytes, plan.expert_bytes + plan.dense_bytes + 92289024u + 802428928u);
}

TEST(SynthPlan, OfTheSliceIsTenPointEightGigabytes) {
  const ModelSpec spec = Make({.name = "k3-slice"});
  const SynthPlan plan = PlanSynth(spec);
  // Per-layer sizes of the release without experts, less 800 of 896 router rows and biases, and 2048 of 163840
  // embeddings.
  const uint64_t less_router = 800 * (7168 * 2 + 4);
  const uint64_t globals = 4697663488 - uint64_t{163840 - 2048} * 7168 * 2 * 2;
  EXPECT_EQ(plan.dense_bytes,
            uint64_t{2341213184} + 2 * (uint64_t{1267744256} - less_router) + (844335616 - less_router) + globals);
  EXPECT_EQ(plan.expert_bytes, uint64_t{17547264} * 96 * 3);
  EXPECT_NEAR(static_cast<double>(plan.file_bytes) / 1e9, 10.8, 0.05);
  EXPECT_NEAR(static_cast<double>(plan.bytes_per_token) / 1e9, 6.55, 0.05);
  EXPECT_EQ(spec.num_experts_per_token, 16);
  EXPECT_EQ(spec.layers[0].feed_forward, FeedForwardKind::kDense);
  EXPECT_THAT(MlaLayers(spec), ElementsAre(3));
}

TEST(SynthShape, K3HasMlaInEveryFourthAndTheLastLayer) {
  const std::vector<int> mla = MlaLayers(Make({.name = "k3"}));
  EXPECT_EQ(mla.size(), 24u);
  EXPECT_EQ(mla[0], 3);
  EXPECT_EQ(mla[22], 91);
  EXPECT_EQ(mla[23], 92);
}

TEST(SynthShape, NanoIsTheShapeOfTheBundledModel) {
  const ModelSpec nano = Make({.name = "nano"});
  const ModelSpec bundled = Make({.name = test::RepoPath("models/k3-nano/config.json")});
  EXPECT_EQ(MakeConfigText(nano), MakeConfigText(bundled));
  EXPECT_EQ(nano.eos_token_ids, bundled.eos_token_ids);
}

TEST(SynthShape, TakesEveryDimensionFromAFile) {
  const std::string path = test::RepoPath("tests/data/k3-micro/config.json");
  const Result<Json> json = ReadJsonFile(path);
  ASSERT_TRUE(json);
  const Result<ModelSpec> real = ModelSpec::FromConfig(*json, path);
  ASSERT_TRUE(real);
  const ModelSpec made = Make({.name = path});
  EXPECT_EQ(made.hidden_size, 96);
  EXPECT_EQ(MlaLayers(made), (std::vector<int>{2, 5}));
  EXPECT_EQ(MakeConfigText(made), MakeConfigText(*real));
}

TEST(SynthShape, OptionsReplaceNumbers) {
  const ModelSpec spec = Make({.name = "k3", .layers = 6, .experts = 20, .vocabulary = 1000});
  EXPECT_EQ(spec.layers.size(), 6u);
  EXPECT_THAT(MlaLayers(spec), ElementsAre(3, 5));
  EXPECT_EQ(spec.num_experts, 20);
  EXPECT_EQ(spec.vocab_size, 1000);
  EXPECT_EQ(spec.hidden_size, 7168);
  EXPECT_EQ(spec.num_moe_layers, 5);
}

struct BadShape {
  const char* label;
  const char* name;
  std::optional<int64_t> layers, experts, vocabulary;
  const char* message;
};

class BadShapes : public ::testing::TestWithParam<BadShape> {};

TEST_P(BadShapes, AreRefusedWithTheOption) {
  const BadShape& bad = GetParam();
  const Result<ModelSpec> spec = MakeSynthSpec({bad.name, bad.layers, bad.experts, bad.vocabulary});
  ASSERT_FALSE(spec);
  EXPECT_THAT(spec.error().message(), HasSubstr(bad.message));
}

INSTANTIATE_TEST_SUITE_P(
    SynthShape, BadShapes,
    ::testing::Values(BadShape{"FewExperts", "k3", {}, 15, {}, "--experts: expected 16 to"},
                      BadShape{"NoLayers", "k3", 0, {}, {}, "--layers: expected 1 to"},
                      BadShape{"ManyLayers", "k3", 100000, {}, {}, "--layers"},
                      BadShape{"TinyVocabulary", "k3", {}, {}, 3, "--vocab"},
                      BadShape{"NoFile", "no-such-shape", {}, {}, {}, "expected k3, k3-slice, nano or the path"}),
    [](const auto& test) { return test.param.label; });

}  // namespace
}  // namespace deltafin
