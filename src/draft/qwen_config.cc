#include "draft/qwen_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "draft/config_fields.h"

namespace deltafin {
namespace {

constexpr int64_t kLargestWidth = int64_t{1} << 20;
constexpr int64_t kMostLayers = 256, kMostHeads = 1024, kLargestHead = 1024;
constexpr size_t kMostEndTokens = 16;

void ReadEndTokens(ConfigFields& fields, QwenConfig& c) {
  const Json* ends = fields.Find("eos_token_id");
  if (ends == nullptr) return;
  const Json list = ends->is_array() ? *ends : Json::array({*ends});
  const auto bad = [&] {
    fields.Fault(ErrorCode::kCorrupt, "eos_token_id", Cat("ids from 0 to ", c.vocab - 1), *ends);
  };
  if (list.size() > kMostEndTokens) return bad();
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(c.vocab)) return bad();
    c.end_tokens.push_back(id.get<TokenId>());
  }
}

}  // namespace

Result<QwenConfig> QwenConfig::Parse(std::string_view json, const std::string& what) {
  DFIN_TRY(const Json root, ParseWithoutDuplicates(json, what));
  if (!root.is_object()) return Fail(ErrorCode::kCorrupt, what, ": expected a JSON object");
  ConfigFields fields(root, what);
  fields.Expect("architectures", Json::array({"Qwen3ForCausalLM"}));
  fields.Expect("model_type", "qwen3");
  fields.Expect("hidden_act", "silu");
  fields.Expect("tie_word_embeddings", true);
  fields.ExpectOrAbsent("attention_bias", false);
  fields.ExpectOrAbsent("use_sliding_window", false);
  fields.ExpectOrAbsent("rope_scaling", nullptr);
  QwenConfig c;
  c.hidden = fields.Whole("hidden_size", 1, kLargestWidth);
  c.intermediate = fields.Whole("intermediate_size", 1, kLargestWidth);
  c.layers = fields.Whole("num_hidden_layers", 1, kMostLayers);
  c.heads = fields.Whole("num_attention_heads", 1, kMostHeads);
  c.kv_heads = fields.Whole("num_key_value_heads", 1, kMostHeads);
  if (c.heads % c.kv_heads != 0)
    fields.Fault(ErrorCode::kCorrupt, "num_key_value_heads", Cat("a divisor of ", c.heads), c.kv_heads);
  c.head_dim = fields.Whole("head_dim", 2, kLargestHead);
  if (c.head_dim % 2 != 0) fields.Fault(ErrorCode::kCorrupt, "head_dim", "an even number", c.head_dim);
  c.vocab = fields.Whole("vocab_size", 1, int64_t{1} << 24);
  c.positions = fields.Whole("max_position_embeddings", 1, int64_t{1} << 30);
  c.norm_eps = static_cast<float>(fields.Number("rms_norm_eps", 0, 1));
  c.rope_theta = fields.Number("rope_theta", 1, 1e12);
  ReadEndTokens(fields, c);
  DFIN_TRY_VOID(fields.status());
  return c;
}

std::vector<DraftTensor> QwenTensors(const QwenConfig& c) {
  const int64_t h = c.hidden, query = c.heads * c.head_dim, key = c.kv_heads * c.head_dim;
  std::vector<DraftTensor> out = {{std::string(kQwenEmbedding), {c.vocab, h}},
                                  {"model.norm.weight", {h}},
                                  {"lm_head.weight", {c.vocab, h}, /*read=*/false, /*required=*/false}};
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = Cat("model.layers.", l, ".");
    const DraftTensor tensors[] = {{"input_layernorm.weight", {h}},
                                   {"post_attention_layernorm.weight", {h}},
                                   {"self_attn.q_proj.weight", {query, h}},
                                   {"self_attn.k_proj.weight", {key, h}},
                                   {"self_attn.v_proj.weight", {key, h}},
                                   {"self_attn.o_proj.weight", {h, query}},
                                   {"self_attn.q_norm.weight", {c.head_dim}},
                                   {"self_attn.k_norm.weight", {c.head_dim}},
                                   {"mlp.gate_proj.weight", {c.intermediate, h}},
                                   {"mlp.up_proj.weight", {c.intermediate, h}},
                                   {"mlp.down_proj.weight", {h, c.intermediate}}};
    for (const DraftTensor& tensor : tensors) out.push_back({at + tensor.name, tensor.shape});
  }
  std::sort(out.begin(), out.end(), [](const DraftTensor& a, const DraftTensor& b) { return a.name < b.name; });
  return out;
}

}  // namespace deltafin
