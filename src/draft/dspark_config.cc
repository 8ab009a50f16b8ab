#include "draft/dspark_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "draft/config_fields.h"

namespace deltafin {
namespace {

constexpr int64_t kLargestWidth = int64_t{1} << 20;
constexpr int64_t kMostLayers = 64;

void ReadTaps(ConfigFields& fields, const ModelSpec& target, DsparkConfig& c) {
  const auto layers = static_cast<int64_t>(target.layers.size());
  const Json* taps = fields.Find("target_layer_ids");
  const int64_t count = fields.Whole("num_target_layers", 1, layers);
  if (taps == nullptr) return;
  const auto bad = [&] {
    fields.Fault(ErrorCode::kCorrupt, "target_layer_ids", Cat(count, " ascending layers below ", layers), *taps);
  };
  if (!taps->is_array() || static_cast<int64_t>(taps->size()) != count) return bad();
  int64_t before = -1;
  for (const Json& tap : *taps) {
    if (!tap.is_number_integer()) return bad();
    const auto layer = tap.get<int64_t>();
    if (layer <= before || layer >= layers) return bad();
    c.taps.push_back(static_cast<int32_t>(layer));
    before = layer;
  }
}

void ReadYarn(ConfigFields& fields, DsparkConfig& c) {
  const int64_t most = int64_t{1} << 30;
  c.yarn.dims = c.rope;
  c.yarn.theta = fields.Number("rope_theta", 1, 1e12);
  const Json* yarn = fields.Find("rope_parameters");
  if (yarn == nullptr) return;
  if (!yarn->is_object()) return fields.Fault(ErrorCode::kCorrupt, "rope_parameters", "an object", *yarn);
  ConfigFields inner(*yarn, fields.what() + ": rope_parameters");
  inner.Expect("rope_type", "yarn");
  c.yarn.factor = inner.Number("factor", 0.999, 1e6);
  c.yarn.original_positions = inner.Whole("original_max_position_embeddings", 1, most);
  c.yarn.beta_fast = inner.Number("beta_fast", 0, 1e6);
  c.yarn.beta_slow = inner.Number("beta_slow", 0, 1e6);
  c.yarn.mscale = inner.Number("mscale", 0, 1e3);
  c.yarn.mscale_all_dim = inner.Number("mscale_all_dim", 0, 1e3);
  if (inner.Number("rope_theta", 1, 1e12) != c.yarn.theta)
    fields.Fault(ErrorCode::kCorrupt, "rope_parameters", Cat("rope_theta ", c.yarn.theta), *yarn);
  const Status read = inner.status();
  if (!read && fields.status()) fields.Adopt(read);
}

}  // namespace

Result<DsparkConfig> DsparkConfig::Parse(std::string_view json, const std::string& what, const ModelSpec& target) {
  DFIN_TRY(const Json root, ParseWithoutDuplicates(json, what));
  if (!root.is_object()) return Fail(ErrorCode::kCorrupt, what, ": expected a JSON object");
  ConfigFields fields(root, what);
  fields.Expect("architectures", Json::array({"K3DSparkModel"}));
  fields.Expect("model_type", "k3_dspark");
  fields.Expect("mla_use_nope", false);
  fields.Expect("mla_use_output_gate", false);
  fields.Expect("markov_head_type", "vanilla");
  fields.Expect("enable_confidence_head", true);
  fields.Expect("confidence_head_with_markov", true);
  fields.Expect("tie_word_embeddings", false);
  fields.Expect("hidden_size", target.hidden_size);
  fields.Expect("target_hidden_size", target.hidden_size);
  fields.Expect("target_num_hidden_layers", static_cast<int64_t>(target.layers.size()));
  fields.Expect("vocab_size", target.vocab_size);
  fields.Expect("draft_vocab_size", target.vocab_size);
  DsparkConfig c;
  c.hidden = target.hidden_size;
  c.vocab = target.vocab_size;
  c.intermediate = fields.Whole("intermediate_size", 1, kLargestWidth);
  c.layers = fields.Whole("num_hidden_layers", 1, kMostLayers);
  c.heads = fields.Whole("num_attention_heads", 1, 4096);
  fields.Expect("num_key_value_heads", c.heads);
  c.q_lora = fields.Whole("q_lora_rank", 1, kLargestWidth);
  c.kv_lora = fields.Whole("kv_lora_rank", 1, kLargestWidth);
  c.nope = fields.Whole("qk_nope_head_dim", 1, 4096);
  c.rope = fields.Whole("qk_rope_head_dim", 2, 4096);
  if (c.rope % 2 != 0) fields.Fault(ErrorCode::kCorrupt, "qk_rope_head_dim", "an even number", c.rope);
  c.v_dim = fields.Whole("v_head_dim", 1, 4096);
  c.markov_rank = fields.Whole("markov_rank", 1, kLargestWidth);
  c.norm_eps = static_cast<float>(fields.Number("rms_norm_eps", 0, 1));
  c.mask_token = static_cast<TokenId>(fields.Whole("mask_token_id", 0, c.vocab - 1));
  (void)fields.Whole("max_position_embeddings", 1, int64_t{1} << 40);
  ReadTaps(fields, target, c);
  ReadYarn(fields, c);
  DFIN_TRY_VOID(fields.status());
  return c;
}

std::vector<DraftTensor> DsparkTensors(const DsparkConfig& c) {
  const int64_t h = c.hidden;
  std::vector<DraftTensor> out = {{"context_proj.weight", {h, c.tap_width()}},
                                  {"context_norm.weight", {h}},
                                  {"embed_tokens.weight", {c.vocab, h}, /*read=*/false},
                                  {"final_norm.weight", {h}},
                                  {"markov_head.markov_w1.weight", {c.vocab, c.markov_rank}},
                                  {"markov_head.markov_w2.weight", {c.vocab, c.markov_rank}},
                                  {"confidence_head.proj.weight", {1, h + c.markov_rank}},
                                  {"confidence_head.proj.bias", {1}}};
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = Cat("layers.", l, ".");
    const DraftTensor tensors[] = {{"input_layernorm.weight", {h}},
                                   {"post_attention_layernorm.weight", {h}},
                                   {"self_attn.q_a_proj.weight", {c.q_lora, h}},
                                   {"self_attn.q_a_layernorm.weight", {c.q_lora}},
                                   {"self_attn.q_b_proj.weight", {c.heads * (c.nope + c.rope), c.q_lora}},
                                   {"self_attn.kv_a_proj_with_mqa.weight", {c.latent_width(), h}},
                                   {"self_attn.kv_a_layernorm.weight", {c.kv_lora}},
                                   {"self_attn.kv_b_proj.weight", {c.heads * (c.nope + c.v_dim), c.kv_lora}},
                                   {"self_attn.o_proj.weight", {h, c.heads * c.v_dim}},
                                   {"mlp.gate_proj.weight", {c.intermediate, h}},
                                   {"mlp.up_proj.weight", {c.intermediate, h}},
                                   {"mlp.down_proj.weight", {h, c.intermediate}}};
    for (const DraftTensor& tensor : tensors) out.push_back({at + tensor.name, tensor.shape});
  }
  std::sort(out.begin(), out.end(), [](const DraftTensor& a, const DraftTensor& b) { return a.name < b.name; });
  return out;
}

}  // namespace deltafin
