#include "spec/tensor_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "spec/memory_math.h"
#include "support/release_config.h"

namespace deltafin {
namespace {

ModelSpec ReleaseSpec() {
  Result<ModelSpec> spec = ModelSpec::FromConfig(test::ReleaseConfig(), "config.json");
  EXPECT_TRUE(spec) << spec.error().message();
  return *spec;
}

uint64_t LayerBytes(const ModelSpec& spec, int layer) {
  int64_t bytes = 0;
  for (const TensorSpec& t : LayerTensors(spec, layer)) bytes += t.shape.elements() * ByteSize(t.dtype);
  return static_cast<uint64_t>(bytes);
}

// The release stores A_log with 128 entries for 96 heads; the table counts the 96.
constexpr uint64_t kPadding = (128 - 96) * 4;

// Figures: the release's shards (spec/tensors_and_vision.md, 12 and 13.8).
TEST(TensorTable, AddsUpToTheBytesOfTheRelease) {
  const ModelSpec spec = ReleaseSpec();
  EXPECT_EQ(ExpertWeightBytes(spec), 1'446'456'066'048u);
  EXPECT_EQ(DenseWeightBytes(spec), 113'509'540'864u - 69 * kPadding);
  EXPECT_EQ(LayerBytes(spec, 0), 2'341'213'184u - kPadding);
  EXPECT_EQ(LayerBytes(spec, 1), 1'267'744'256u - kPadding);
  EXPECT_EQ(LayerBytes(spec, 3), 844'335'616u);
  EXPECT_EQ(ExpertGeometry(spec).record_bytes(), 17'547'264);
}

TEST(TensorTable, CountsTheTensorsOfTheRelease) {
  const ModelSpec spec = ReleaseSpec();
  EXPECT_EQ(spec.num_kda_layers, 69);
  EXPECT_EQ(spec.num_mla_layers, 24);
  EXPECT_EQ(LayerTensors(spec, 0).size(), 23u);
  EXPECT_EQ(LayerTensors(spec, 1).size() + 896 * kExpertParts, 5404u);
  EXPECT_EQ(LayerTensors(spec, 3).size() + 896 * kExpertParts, 5398u);
  EXPECT_EQ(GlobalTensors(spec).size(), 5u);
}

TEST(TensorTable, NoNameIsListedTwiceInALayer) {
  for (const int layer : {0, 1, 3}) {
    std::vector<std::string_view> names;
    for (const TensorSpec& t : LayerTensors(ReleaseSpec(), layer)) names.push_back(t.name);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << "layer " << layer;
  }
}

TEST(TensorTable, ALogMayBePaddedAndNothingElse) {
  const std::vector<TensorSpec> tensors = LayerTensors(ReleaseSpec(), 0);
  const auto find = [&](std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& t) { return t.name == name; });
  };
  const TensorSpec a_log = find("self_attn.A_log");
  EXPECT_TRUE(a_log.Matches(DType::kF32, {128}));
  EXPECT_TRUE(a_log.Matches(DType::kF32, {96}));
  EXPECT_FALSE(a_log.Matches(DType::kF32, {95}));
  EXPECT_FALSE(a_log.Matches(DType::kF32, {128, 1}));
  EXPECT_FALSE(a_log.Matches(DType::kBF16, {128}));
  EXPECT_EQ(a_log.Expected(), "F32 [96] or longer");
  EXPECT_FALSE(find("self_attn.dt_bias").Matches(DType::kF32, {12289}));
}

TEST(TensorName, TellsLayersExpertsGlobalsAndVisionApart) {
  using Kind = TensorName::Kind;
  const TensorName layer = ParseTensorName("language_model.model.layers.17.self_attn.q_proj.weight");
  EXPECT_EQ(layer.kind, Kind::kLayer);
  EXPECT_EQ(layer.layer, 17);
  EXPECT_EQ(layer.rest, "self_attn.q_proj.weight");
  const std::string expert_name = ExpertTensorName(92, 895, "w2.weight_scale");
  const TensorName expert = ParseTensorName(expert_name);
  EXPECT_EQ(expert.kind, Kind::kExpert);
  EXPECT_EQ(expert.layer, 92);
  EXPECT_EQ(expert.expert, 895);
  EXPECT_EQ(expert.rest, "w2.weight_scale");
  EXPECT_EQ(ParseTensorName("language_model.lm_head.weight").kind, Kind::kGlobal);
  EXPECT_EQ(ParseTensorName("vision_tower.encoder.blocks.0.wo.weight").kind, Kind::kVision);
  EXPECT_EQ(ParseTensorName("mm_projector.proj.0.weight").kind, Kind::kVision);
  EXPECT_EQ(ParseTensorName("model.layers.0.self_attn.q_proj.weight").kind, Kind::kUnknown);
}

TEST(TensorName, AcceptsOneSpellingPerNumber) {
  using Kind = TensorName::Kind;
  for (const char* number : {"01", "-1", "+1", "", "1x", "99999999999999999999", "1"}) {
    const std::string name = Cat("language_model.model.layers.", number, ".mlp_res_norm.weight");
    EXPECT_EQ(ParseTensorName(name).kind, std::string(number) == "1" ? Kind::kLayer : Kind::kUnknown) << name;
  }
  EXPECT_EQ(ParseTensorName("language_model.model.layers.7").kind, Kind::kUnknown);
}

}  // namespace
}  // namespace deltafin
