#include "synth/shapes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace deltafin {
namespace {

// config.json of the release; docs and tests compare sizes with the published shard sizes.
ModelSpec K3Dimensions() {
  ModelSpec s;
  s.hidden_size = 7168;
  s.vocab_size = 163840;
  s.intermediate_size = 33792;
  s.attn_res_block_size = 12;
  s.max_position_embeddings = 1048576;
  s.rms_norm_eps = 1e-5f;
  s.situ_beta = 4;
  s.situ_linear_beta = 25;
  s.kda_heads = 96;
  s.kda_head_dim = 128;
  s.conv_kernel = 4;
  s.gate_lower_bound = -5;
  s.mla_heads = 96;
  s.q_lora_rank = 1536;
  s.kv_lora_rank = 512;
  s.qk_nope_head_dim = 128;
  s.qk_rope_head_dim = 64;
  s.v_head_dim = 128;
  s.num_experts = 896;
  s.num_experts_per_token = 16;
  s.num_shared_experts = 2;
  s.routed_expert_hidden_size = 3584;
  s.moe_intermediate_size = 3072;
  s.routed_scaling_factor = 1;
  return s;
}

// models/k3-nano/config.json.
ModelSpec NanoDimensions() {
  ModelSpec s = K3Dimensions();
  s.hidden_size = 256;
  s.vocab_size = 8192;
  s.intermediate_size = 1024;
  s.attn_res_block_size = 3;
  s.max_position_embeddings = 4096;
  s.kda_heads = 4;
  s.kda_head_dim = 64;
  s.mla_heads = 4;
  s.q_lora_rank = 128;
  s.kv_lora_rank = 64;
  s.qk_nope_head_dim = 64;
  s.qk_rope_head_dim = 32;
  s.v_head_dim = 64;
  s.num_experts = 96;
  s.num_experts_per_token = 8;
  s.routed_expert_hidden_size = 128;
  s.moe_intermediate_size = 96;
  return s;
}

// Three KDA layers, then one MLA, and MLA at the end, whatever the count; dense feed-forward in the first `dense`.
void SetLayers(ModelSpec& spec, int64_t count, int64_t dense) {
  spec.layers.assign(static_cast<size_t>(count), LayerSpec{});
  for (int64_t l = 0; l < count; ++l) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(l)];
    layer.attention = (l + 1) % 4 == 0 || l + 1 == count ? AttentionKind::kMla : AttentionKind::kKda;
    layer.feed_forward = l < dense ? FeedForwardKind::kDense : FeedForwardKind::kMoe;
  }
}

int64_t DenseLayers(const ModelSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const LayerSpec& layer) { return layer.feed_forward == FeedForwardKind::kDense; });
}

Result<ModelSpec> ShapeFromFile(const std::string& path) {
  DFIN_TRY(const Json config, ReadJsonFile(path));
  return ModelSpec::FromConfig(config, path);
}

Result<ModelSpec> BaseShape(const std::string& name) {
  constexpr int64_t kK3Layers = 93, kSliceLayers = 4, kNanoLayers = 9, kDense = 1;
  ModelSpec spec = name == "nano" ? NanoDimensions() : K3Dimensions();
  if (name == "k3") {
    SetLayers(spec, kK3Layers, kDense);
  } else if (name == "k3-slice") {
    spec.num_experts = 96;
    spec.vocab_size = 2048;
    SetLayers(spec, kSliceLayers, kDense);
  } else if (name == "nano") {
    SetLayers(spec, kNanoLayers, kDense);
  } else {
    Result<ModelSpec> from_file = ShapeFromFile(name);
    if (!from_file)
      return FailWith(std::move(from_file), "--shape: expected k3, k3-slice, nano or the path of a config.json");
    return from_file;
  }
  return spec;
}

Status ReplaceNumber(const char* option, std::optional<int64_t> value, int64_t min, int64_t max, int64_t* field) {
  if (!value) return {};
  if (*value < min || *value > max)
    return Fail(ErrorCode::kInvalidArgument, option, ": expected ", min, " to ", max, ", got ", *value);
  *field = *value;
  return {};
}

}  // namespace

int64_t OrdinaryTokens(int64_t vocabulary) { return vocabulary - std::min<int64_t>(256, vocabulary / 4); }

Result<ModelSpec> MakeSynthSpec(const SynthShape& shape) {
  constexpr int64_t kFewestTokens = 16, kMostTokens = int64_t{1} << 24, kMostLayers = 512;
  constexpr int64_t kMostExperts = int64_t{1} << 14;
  DFIN_TRY(ModelSpec spec, BaseShape(shape.name));
  auto layers = static_cast<int64_t>(spec.layers.size());
  DFIN_TRY_VOID(ReplaceNumber("--layers", shape.layers, 1, kMostLayers, &layers));
  DFIN_TRY_VOID(ReplaceNumber("--experts", shape.experts, spec.num_experts_per_token, kMostExperts, &spec.num_experts));
  DFIN_TRY_VOID(ReplaceNumber("--vocab", shape.vocabulary, kFewestTokens, kMostTokens, &spec.vocab_size));
  if (spec.vocab_size < kFewestTokens)
    return Fail(ErrorCode::kInvalidArgument, shape.name, ": vocab_size: expected at least ", kFewestTokens, ", got ",
                spec.vocab_size);
  if (shape.layers) SetLayers(spec, layers, std::min(DenseLayers(spec), layers));
  return CheckSynthSpec(spec);
}

Result<ModelSpec> CheckSynthSpec(const ModelSpec& spec) {
  DFIN_TRY(const Json config, ParseJson(MakeConfigText(spec), "synthetic config.json"));
  return ModelSpec::FromConfig(config, "synthetic config.json");
}

}  // namespace deltafin
