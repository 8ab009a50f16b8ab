#include "spec/tensor_table.h"

#include <charconv>

namespace deltafin {
namespace {

constexpr DType kBf16 = DType::kBF16;
constexpr DType kF32 = DType::kF32;

void AppendKda(const ModelSpec& s, std::vector<TensorSpec>& out) {
  const int64_t h = s.hidden_size, width = s.kda_width(), d = s.kda_head_dim;
  out.insert(out.end(),
             {
                 {"self_attn.q_proj.weight", "query projection, row = head * head_dim + channel", kBf16, {width, h}},
                 {"self_attn.k_proj.weight", "key projection", kBf16, {width, h}},
                 {"self_attn.v_proj.weight", "value projection", kBf16, {width, h}},
                 {"self_attn.g_proj.weight", "output gate", kBf16, {width, h}},
                 {"self_attn.o_proj.weight", "output projection", kBf16, {h, width}},
                 {"self_attn.f_a_proj.weight", "decay, low-rank down", kBf16, {d, h}},
                 {"self_attn.f_b_proj.weight", "decay, low-rank up", kBf16, {width, d}},
                 {"self_attn.b_proj.weight", "beta, one row per head", kBf16, {s.kda_heads, h}},
                 {"self_attn.q_conv1d.weight",
                  "causal convolution, last tap is the current step",
                  kF32,
                  {width, 1, s.conv_kernel}},
                 {"self_attn.k_conv1d.weight", "causal convolution", kF32, {width, 1, s.conv_kernel}},
                 {"self_attn.v_conv1d.weight", "causal convolution", kF32, {width, 1, s.conv_kernel}},
                 // One value per head; the release pads it with zeros to head_dim entries.
                 {"self_attn.A_log", "decay rate per head", kF32, {s.kda_heads}, true},
                 {"self_attn.dt_bias", "decay bias per channel", kF32, {width}},
                 {"self_attn.o_norm.weight", "output norm, shared by all heads", kF32, {d}},
             });
}

void AppendMla(const ModelSpec& s, std::vector<TensorSpec>& out) {
  const int64_t h = s.hidden_size;
  out.insert(
      out.end(),
      {
          {"self_attn.q_a_proj.weight", "query, low-rank down", kBf16, {s.q_lora_rank, h}},
          {"self_attn.q_a_layernorm.weight", "query norm, eps 1e-6", kBf16, {s.q_lora_rank}},
          {"self_attn.q_b_proj.weight", "query, low-rank up", kBf16, {s.q_width(), s.q_lora_rank}},
          {"self_attn.kv_a_proj_with_mqa.weight",
           "latent, then the key part shared by all heads",
           kBf16,
           {s.latent_width(), h}},
          {"self_attn.kv_a_layernorm.weight", "latent norm, eps 1e-6", kBf16, {s.kv_lora_rank}},
          {"self_attn.kv_b_proj.weight", "latent to key and value, per head", kBf16, {s.kv_width(), s.kv_lora_rank}},
          {"self_attn.g_proj.weight", "output gate", kBf16, {s.mla_out_width(), h}},
          {"self_attn.o_proj.weight", "output projection", kBf16, {h, s.mla_out_width()}},
      });
}

void AppendDenseMlp(const ModelSpec& s, std::vector<TensorSpec>& out) {
  const int64_t h = s.hidden_size, f = s.intermediate_size;
  out.insert(out.end(), {
                            {"mlp.gate_proj.weight", "feed-forward gate", kBf16, {f, h}},
                            {"mlp.up_proj.weight", "feed-forward up", kBf16, {f, h}},
                            {"mlp.down_proj.weight", "feed-forward down", kBf16, {h, f}},
                        });
}

void AppendMoe(const ModelSpec& s, std::vector<TensorSpec>& out) {
  const int64_t h = s.hidden_size, z = s.routed_expert_hidden_size, shared = s.shared_width();
  out.insert(
      out.end(),
      {
          {"block_sparse_moe.gate.weight", "router", kBf16, {s.num_experts, h}},
          {"block_sparse_moe.gate.e_score_correction_bias", "router bias, for the choice only", kF32, {s.num_experts}},
          {"block_sparse_moe.routed_expert_down_proj.weight", "into the experts' latent", kBf16, {z, h}},
          {"block_sparse_moe.routed_expert_norm.weight", "norm of the combined expert output", kBf16, {z}},
          {"block_sparse_moe.routed_expert_up_proj.weight", "back from the latent", kBf16, {h, z}},
          {"block_sparse_moe.shared_experts.gate_proj.weight", "shared experts, gate", kBf16, {shared, h}},
          {"block_sparse_moe.shared_experts.up_proj.weight", "shared experts, up", kBf16, {shared, h}},
          {"block_sparse_moe.shared_experts.down_proj.weight", "shared experts, down", kBf16, {h, shared}},
      });
}

// Digits only, without leading zeros, at most seven: one spelling per number.
std::optional<int> TakeNumber(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || digits > 7 || value < 0 || text[0] == '-' || (text[0] == '0' && digits > 1))
    return std::nullopt;
  text.remove_prefix(digits);
  if (text.empty() || text[0] != '.') return std::nullopt;
  text.remove_prefix(1);
  return value;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

bool TensorSpec::Matches(DType got_dtype, const Shape& got_shape) const {
  if (got_dtype != dtype) return false;
  if (padded) return got_shape.rank() == 1 && got_shape[0] >= shape[0];
  return got_shape == shape;
}

std::string TensorSpec::Expected() const {
  std::string text = std::string(ToString(dtype)) + " " + ToString(shape);
  if (padded) text += " or longer";
  return text;
}

std::vector<TensorSpec> GlobalTensors(const ModelSpec& s) {
  const int64_t h = s.hidden_size;
  return {
      {kEmbedTokens, "token embeddings", kBf16, {s.vocab_size, h}},
      {"language_model.lm_head.weight", "output head, not tied", kBf16, {s.vocab_size, h}},
      {"language_model.model.norm.weight", "final norm", kBf16, {h}},
      {"language_model.model.output_attn_res_norm.weight", "residual mix before the head, norm", kBf16, {h}},
      {"language_model.model.output_attn_res_proj.weight", "residual mix before the head, direction", kBf16, {1, h}},
  };
}

std::vector<TensorSpec> LayerTensors(const ModelSpec& s, int layer) {
  const LayerSpec& kind = s.layers[static_cast<size_t>(layer)];
  const int64_t h = s.hidden_size;
  std::vector<TensorSpec> out = {
      {"input_layernorm.weight", "norm before attention", kBf16, {h}},
      {"post_attention_layernorm.weight", "norm before feed-forward", kBf16, {h}},
      // Layer 0 has this pair too, and the forward pass never uses it there.
      {"self_attention_res_norm.weight", "residual mix before attention, norm", kBf16, {h}},
      {"self_attention_res_proj.weight", "residual mix before attention, direction", kBf16, {1, h}},
      {"mlp_res_norm.weight", "residual mix before feed-forward, norm", kBf16, {h}},
      {"mlp_res_proj.weight", "residual mix before feed-forward, direction", kBf16, {1, h}},
  };
  if (kind.attention == AttentionKind::kKda)
    AppendKda(s, out);
  else
    AppendMla(s, out);
  if (kind.feed_forward == FeedForwardKind::kDense)
    AppendDenseMlp(s, out);
  else
    AppendMoe(s, out);
  return out;
}

std::array<TensorSpec, kExpertParts> ExpertTensors(const ModelSpec& spec) {
  const ExpertGeometry g(spec);
  const auto packed = [&](ExpertMatrix m) { return Shape{g.rows(m), g.cols(m) / 2}; };
  const auto scale = [&](ExpertMatrix m) { return Shape{g.rows(m), g.cols(m) / kMxfp4Group}; };
  constexpr auto kW1 = ExpertMatrix::kW1, kW2 = ExpertMatrix::kW2, kW3 = ExpertMatrix::kW3;
  return {{
      {"w1.weight_packed", "gate, E2M1 pairs", DType::kU8, packed(kW1)},
      {"w1.weight_scale", "gate, E8M0 scales", DType::kU8, scale(kW1)},
      {"w2.weight_packed", "down, E2M1 pairs", DType::kU8, packed(kW2)},
      {"w2.weight_scale", "down, E8M0 scales", DType::kU8, scale(kW2)},
      {"w3.weight_packed", "up, E2M1 pairs", DType::kU8, packed(kW3)},
      {"w3.weight_scale", "up, E8M0 scales", DType::kU8, scale(kW3)},
  }};
}

std::string LayerTensorName(int layer, std::string_view name) {
  return std::string(kLayerPrefix) + std::to_string(layer) + "." + std::string(name);
}

std::string ExpertTensorName(int layer, int64_t expert, std::string_view name) {
  return LayerTensorName(layer, kExpertPrefix) + std::to_string(expert) + "." + std::string(name);
}

TensorName ParseTensorName(std::string_view name) {
  using Kind = TensorName::Kind;
  if (name.starts_with("vision_tower.") || name.starts_with("mm_projector.")) return {Kind::kVision, -1, -1, name};
  if (!name.starts_with(kTextPrefix)) return {Kind::kUnknown, -1, -1, name};
  std::string_view rest = name;
  if (!TakePrefix(rest, kLayerPrefix)) return {Kind::kGlobal, -1, -1, name};
  const std::optional<int> layer = TakeNumber(rest);
  if (!layer) return {Kind::kUnknown, -1, -1, name};
  if (!TakePrefix(rest, kExpertPrefix)) return {Kind::kLayer, *layer, -1, rest};
  const std::optional<int> expert = TakeNumber(rest);
  if (!expert) return {Kind::kUnknown, -1, -1, name};
  return {Kind::kExpert, *layer, *expert, rest};
}

}  // namespace deltafin
