// The configuration files of a synthetic checkpoint, with the keys that the release has and the engine reads.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/model_spec.h"
#include "synth/shapes.h"
#include "tensor/mxfp4.h"

namespace deltafin {
namespace {

// JSON with two blanks of indentation a level.
class JsonWriter {
 public:
  void Number(const char* key, int64_t value) { Member(key, std::to_string(value)); }
  void Number(const char* key, float value) {
    char text[32];
    const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
    std::string number(text, end.ptr);
    if (number.find_first_of(".e") == std::string::npos) number += ".0";
    Member(key, number);
  }
  void Flag(const char* key, bool value) { Member(key, value ? "true" : "false"); }
  void Text(const char* key, const char* value) { Member(key, Cat('"', value, '"')); }
  void Raw(const char* key, const std::string& value) { Member(key, value); }
  void Open(const char* key) {
    Member(key, "{");
    ++depth_;
    first_ = true;
  }
  void Close() {
    --depth_;
    first_ = false;
    text_ += Cat('\n', Indent(), '}');
  }
  std::string Finish() { return text_ + "\n}\n"; }

 private:
  std::string Indent() const { return std::string(2 * depth_, ' '); }
  void Member(const char* key, const std::string& value) {
    text_ += Cat(first_ ? "\n" : ",\n", Indent(), '"', key, "\": ", value);
    first_ = false;
  }

  std::string text_ = "{";
  size_t depth_ = 1;
  bool first_ = true;
};

// Numbers of the layers of one kind, counted from 1 as in the release.
std::string LayerList(const ModelSpec& spec, AttentionKind kind) {
  std::string text = "[";
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (spec.layers[l].attention != kind) continue;
    text += Cat(text.size() > 1 ? ", " : "", l + 1);
  }
  return text + "]";
}

// The special ids lie where the release has them, counted from the first special id.
struct SpecialIds {
  int64_t begin, end_of_message, media, padding;
};

SpecialIds SpecialIdsOf(const ModelSpec& spec) {
  constexpr int64_t kEndOfMessage = 2, kMedia = 21;
  const int64_t first = OrdinaryTokens(spec.vocab_size), last = spec.vocab_size - 1;
  return {first, std::min(first + kEndOfMessage, last), std::min(first + kMedia, last), last};
}

void WriteLinearAttention(const ModelSpec& spec, JsonWriter& json) {
  json.Open("linear_attn_config");
  json.Raw("full_attn_layers", LayerList(spec, AttentionKind::kMla));
  json.Number("gate_lower_bound", spec.gate_lower_bound);
  json.Number("head_dim", spec.kda_head_dim);
  json.Raw("kda_layers", LayerList(spec, AttentionKind::kKda));
  json.Number("num_heads", spec.kda_heads);
  json.Number("short_conv_kernel_size", spec.conv_kernel);
  json.Flag("use_full_rank_gate", true);
  json.Close();
}

void WriteExperts(const ModelSpec& spec, JsonWriter& json) {
  const auto dense = std::count_if(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return layer.feed_forward == FeedForwardKind::kDense;
  });
  json.Number("first_k_dense_replace", static_cast<int64_t>(dense));
  json.Flag("latent_moe_use_norm", true);
  json.Number("moe_intermediate_size", spec.moe_intermediate_size);
  json.Number("moe_layer_freq", int64_t{1});
  json.Flag("moe_renormalize", true);
  json.Text("moe_router_activation_func", "sigmoid");
  json.Number("num_expert_group", int64_t{1});
  json.Number("num_experts", spec.num_experts);
  json.Number("num_experts_per_token", spec.num_experts_per_token);
  json.Number("num_shared_experts", spec.num_shared_experts);
  json.Number("routed_expert_hidden_size", spec.routed_expert_hidden_size);
  json.Number("routed_scaling_factor", spec.routed_scaling_factor);
  json.Number("topk_group", int64_t{1});
  json.Text("topk_method", "noaux_tc");
}

void WriteMla(const ModelSpec& spec, JsonWriter& json) {
  json.Number("kv_lora_rank", spec.kv_lora_rank);
  json.Flag("mla_use_nope", true);
  json.Flag("mla_use_output_gate", true);
  json.Number("num_attention_heads", spec.mla_heads);
  json.Number("num_key_value_heads", spec.mla_heads);
  json.Number("q_lora_rank", spec.q_lora_rank);
  json.Number("qk_nope_head_dim", spec.qk_nope_head_dim);
  json.Number("qk_rope_head_dim", spec.qk_rope_head_dim);
  json.Number("v_head_dim", spec.v_head_dim);
}

void WriteQuantization(JsonWriter& json) {
  json.Open("quantization_config");
  json.Open("config_groups");
  json.Open("group_0");
  json.Text("format", "mxfp4-pack-quantized");
  json.Raw("targets", "[\"Linear\"]");
  json.Open("weights");
  json.Flag("dynamic", false);
  json.Number("group_size", kMxfp4Group);
  json.Number("num_bits", int64_t{4});
  json.Text("scale_dtype", "torch.uint8");
  json.Text("strategy", "group");
  json.Flag("symmetric", true);
  json.Text("type", "float");
  json.Close();
  json.Close();
  json.Close();
  json.Text("format", "mxfp4-pack-quantized");
  json.Text("quant_method", "compressed-tensors");
  json.Text("quantization_status", "compressed");
  json.Close();
}

void WriteTextConfig(const ModelSpec& spec, const SpecialIds& ids, JsonWriter& json) {
  json.Open("text_config");
  json.Number("activation_situ_beta", spec.situ_beta);
  json.Number("activation_situ_linear_beta", spec.situ_linear_beta);
  json.Raw("architectures", "[\"KimiLinearForCausalLM\"]");
  json.Number("attn_res_block_size", spec.attn_res_block_size);
  json.Number("bos_token_id", ids.begin);
  json.Text("dtype", "bfloat16");
  json.Number("eos_token_id", ids.end_of_message);
  json.Text("hidden_act", "situ");
  json.Number("hidden_size", spec.hidden_size);
  json.Number("intermediate_size", spec.intermediate_size);
  WriteLinearAttention(spec, json);
  json.Number("max_position_embeddings", spec.max_position_embeddings);
  json.Text("model_type", "kimi_linear");
  WriteMla(spec, json);
  WriteExperts(spec, json);
  json.Number("num_hidden_layers", static_cast<int64_t>(spec.layers.size()));
  json.Number("num_nextn_predict_layers", int64_t{0});
  json.Number("pad_token_id", ids.padding);
  WriteQuantization(json);
  json.Number("rms_norm_eps", spec.rms_norm_eps);
  json.Flag("tie_word_embeddings", false);
  json.Number("vocab_size", spec.vocab_size);
  json.Close();
}

}  // namespace

std::string MakeConfigText(const ModelSpec& spec) {
  const SpecialIds ids = SpecialIdsOf(spec);
  JsonWriter json;
  json.Raw("architectures", "[\"KimiK3ForConditionalGeneration\"]");
  json.Number("bos_token_id", ids.begin);
  json.Text("dtype", "bfloat16");
  json.Number("eos_token_id", ids.end_of_message);
  json.Number("media_placeholder_token_id", ids.media);
  json.Text("model_type", "kimi_k3");
  json.Number("pad_token_id", ids.padding);
  WriteTextConfig(spec, ids, json);
  json.Flag("tie_word_embeddings", false);
  return json.Finish();
}

std::string MakeGenerationConfigText(const ModelSpec& spec) {
  const SpecialIds ids = SpecialIdsOf(spec);
  JsonWriter json;
  json.Number("bos_token_id", ids.begin);
  json.Number("eos_token_id", ids.end_of_message);
  json.Number("pad_token_id", ids.padding);
  json.Flag("do_sample", false);
  return json.Finish();
}

}  // namespace deltafin
