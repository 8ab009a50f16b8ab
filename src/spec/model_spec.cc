#include "spec/model_spec.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "spec/expert_record.h"
#include "tensor/mxfp4.h"

namespace deltafin {
namespace {

// One object of the configuration, with the accessors that refuse instead of guessing. `where` names it in errors
// ("config.json: text_config").
class Section {
 public:
  static Result<Section> Root(const Json& value, const std::string& where) {
    if (!value.is_object()) return Fail(ErrorCode::kCorrupt, where, ": expected an object, got ", Show(value));
    return Section(value, where);
  }

  const std::string& where() const { return where_; }

  // The member, or nullptr when it is absent or null.
  const Json* Find(const char* key) const {
    const auto it = object_->find(key);
    return it == object_->end() || it->is_null() ? nullptr : &*it;
  }

  Result<Section> Object(const char* key) const {
    const Json* value = Find(key);
    if (value == nullptr) return Missing(key, "an object");
    return Root(*value, where_ + ": " + key);
  }

  Result<int64_t> Int(const char* key, int64_t min, int64_t max) const {
    const std::string wanted = Cat("an integer from ", min, " to ", max);
    const Json* value = Find(key);
    if (value == nullptr) return Missing(key, wanted);
    const bool fits =
        value->is_number_integer() && !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
    if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max) return Wrong(key, wanted, *value);
    return value->get<int64_t>();
  }

  // A number with min < value <= max.
  Result<float> Float(const char* key, double min, double max) const {
    const std::string wanted = Cat("a number above ", min, " and at most ", max);
    const Json* value = Find(key);
    if (value == nullptr) return Missing(key, wanted);
    if (!value->is_number()) return Wrong(key, wanted, *value);
    const double number = value->get<double>();
    const auto result = static_cast<float>(number);  // may become zero: the bound is looked at again
    if (!std::isfinite(number) || number > max || result <= static_cast<float>(min)) return Wrong(key, wanted, *value);
    return result;
  }

  // The member must be exactly `wanted`.
  Status Expect(const char* key, const Json& wanted) const {
    const Json* value = Find(key);
    if (value == nullptr) return Missing(key, Show(wanted));
    if (value->type() != wanted.type() && !(value->is_number_integer() && wanted.is_number_integer()))
      return Wrong(key, Show(wanted), *value);
    if (*value != wanted) return Wrong(key, Show(wanted), *value);
    return {};
  }
  Status ExpectIfPresent(const char* key, const Json& wanted) const {
    if (Find(key) == nullptr) return {};
    return Expect(key, wanted);
  }
  Status ExpectNull(const char* key) const {
    const Json* value = Find(key);
    if (value != nullptr) return Wrong(key, "null", *value);
    return {};
  }

  Failure Missing(const char* key, std::string_view wanted) const {
    return Fail(ErrorCode::kCorrupt, where_, ": ", key, ": expected ", wanted, ", got nothing (the key is missing)");
  }
  Failure Wrong(const char* key, std::string_view wanted, const Json& got) const {
    return Fail(ErrorCode::kUnsupported, where_, ": ", key, ": expected ", wanted, ", got ", Show(got));
  }

  static std::string Show(const Json& value) {
    std::string text = DumpJson(value);
    constexpr size_t kLongest = 80;
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    return text;
  }

 private:
  Section(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  const Json* object_;
  std::string where_;
};

struct IntKey {
  const char* key;
  int64_t ModelSpec::*field;
  int64_t max;
};

// Upper bounds keep every later product (bytes of a tensor, of all experts, of a state) inside 63 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxExperts = int64_t{1} << 14;
constexpr int64_t kMaxExpertsInAll = int64_t{1} << 20;
constexpr int64_t kMaxRecordBytes = int64_t{1} << 30;
constexpr size_t kMaxEndIds = 64;

constexpr std::array kTextKeys = {
    IntKey{"hidden_size", &ModelSpec::hidden_size, kMaxWidth},
    IntKey{"vocab_size", &ModelSpec::vocab_size, int64_t{1} << 24},
    IntKey{"intermediate_size", &ModelSpec::intermediate_size, int64_t{1} << 22},
    IntKey{"attn_res_block_size", &ModelSpec::attn_res_block_size, kMaxLayers},
    IntKey{"max_position_embeddings", &ModelSpec::max_position_embeddings, int64_t{1} << 30},
    IntKey{"num_attention_heads", &ModelSpec::mla_heads, kMaxHeads},
    IntKey{"q_lora_rank", &ModelSpec::q_lora_rank, kMaxWidth},
    IntKey{"kv_lora_rank", &ModelSpec::kv_lora_rank, kMaxWidth},
    IntKey{"qk_nope_head_dim", &ModelSpec::qk_nope_head_dim, kMaxHeads},
    IntKey{"qk_rope_head_dim", &ModelSpec::qk_rope_head_dim, kMaxHeads},
    IntKey{"v_head_dim", &ModelSpec::v_head_dim, kMaxHeads},
    IntKey{"num_experts", &ModelSpec::num_experts, kMaxExperts},
    IntKey{"num_experts_per_token", &ModelSpec::num_experts_per_token, 256},
    IntKey{"num_shared_experts", &ModelSpec::num_shared_experts, 64},
    IntKey{"routed_expert_hidden_size", &ModelSpec::routed_expert_hidden_size, int64_t{1} << 18},
    IntKey{"moe_intermediate_size", &ModelSpec::moe_intermediate_size, int64_t{1} << 18},
};

constexpr std::array kLinearAttentionKeys = {
    IntKey{"num_heads", &ModelSpec::kda_heads, kMaxHeads},
    IntKey{"head_dim", &ModelSpec::kda_head_dim, kMaxHeads},
    IntKey{"short_conv_kernel_size", &ModelSpec::conv_kernel, 64},
};

template <typename Keys>
Status ReadIntegers(const Section& section, const Keys& keys, ModelSpec& spec) {
  for (const IntKey& entry : keys) {
    DFIN_TRY(spec.*entry.field, section.Int(entry.key, 1, entry.max));
  }
  return {};
}

Status CheckArchitecture(const Section& outer, const Section& text) {
  DFIN_TRY_VOID(outer.Expect("model_type", "kimi_k3"));
  DFIN_TRY_VOID(outer.Expect("architectures", Json::array({"KimiK3ForConditionalGeneration"})));
  DFIN_TRY_VOID(text.Expect("model_type", "kimi_linear"));
  DFIN_TRY_VOID(text.ExpectIfPresent("architectures", Json::array({"KimiLinearForCausalLM"})));
  DFIN_TRY_VOID(outer.ExpectIfPresent("tie_word_embeddings", false));
  return text.ExpectIfPresent("tie_word_embeddings", false);
}

// The arithmetic that the engine computes; any other choice would give fluent, wrong text.
Status CheckArithmetic(const Section& text, const Section& linear) {
  DFIN_TRY_VOID(text.Expect("hidden_act", "situ"));
  DFIN_TRY_VOID(text.Expect("moe_router_activation_func", "sigmoid"));
  DFIN_TRY_VOID(text.Expect("topk_method", "noaux_tc"));
  DFIN_TRY_VOID(text.Expect("moe_renormalize", true));
  DFIN_TRY_VOID(text.Expect("latent_moe_use_norm", true));
  DFIN_TRY_VOID(text.Expect("mla_use_nope", true));
  DFIN_TRY_VOID(text.Expect("mla_use_output_gate", true));
  DFIN_TRY_VOID(text.Expect("num_expert_group", 1));
  DFIN_TRY_VOID(text.Expect("topk_group", 1));
  DFIN_TRY_VOID(text.Expect("moe_layer_freq", 1));
  DFIN_TRY_VOID(text.ExpectIfPresent("num_nextn_predict_layers", 0));
  return linear.Expect("use_full_rank_gate", true);
}

Status CheckWeightScheme(const Section& group) {
  DFIN_TRY_VOID(group.ExpectIfPresent("format", "mxfp4-pack-quantized"));
  DFIN_TRY_VOID(group.ExpectNull("input_activations"));
  DFIN_TRY_VOID(group.ExpectNull("output_activations"));
  DFIN_TRY(const Section weights, group.Object("weights"));
  DFIN_TRY_VOID(weights.Expect("num_bits", 4));
  DFIN_TRY_VOID(weights.Expect("type", "float"));
  DFIN_TRY_VOID(weights.Expect("group_size", kMxfp4Group));
  DFIN_TRY_VOID(weights.Expect("strategy", "group"));
  DFIN_TRY_VOID(weights.Expect("symmetric", true));
  DFIN_TRY_VOID(weights.ExpectIfPresent("dynamic", false));
  DFIN_TRY_VOID(weights.ExpectNull("actorder"));
  DFIN_TRY_VOID(weights.ExpectNull("block_structure"));
  DFIN_TRY_VOID(weights.ExpectNull("zp_dtype"));
  return weights.ExpectIfPresent("scale_dtype", "torch.uint8");
}

Status CheckQuantization(const Section& section) {
  DFIN_TRY(const Section quantization, section.Object("quantization_config"));
  DFIN_TRY_VOID(quantization.Expect("quant_method", "compressed-tensors"));
  DFIN_TRY_VOID(quantization.Expect("format", "mxfp4-pack-quantized"));
  DFIN_TRY_VOID(quantization.ExpectNull("kv_cache_scheme"));
  DFIN_TRY(const Section groups, quantization.Object("config_groups"));
  const Json& all = *quantization.Find("config_groups");
  if (all.size() != 1) return quantization.Wrong("config_groups", "one group", all);
  DFIN_TRY(const Section group, groups.Object(all.begin().key().c_str()));
  return CheckWeightScheme(group);
}

// Puts `kind` on the layers that a 1-based list of the config names.
Status ReadLayerList(const Section& linear, const char* key, AttentionKind kind, std::vector<int>& kind_of_layer) {
  const auto layers = static_cast<int64_t>(kind_of_layer.size());
  const std::string wanted = Cat("a list of layer numbers from 1 to ", layers);
  const Json* list = linear.Find(key);
  if (list == nullptr) return linear.Missing(key, wanted);
  if (!list->is_array() || list->size() > kind_of_layer.size()) return linear.Wrong(key, wanted, *list);
  for (const Json& entry : *list) {
    if (!entry.is_number_integer() || entry < 1 || entry > layers) return linear.Wrong(key, wanted, entry);
    int& slot = kind_of_layer[entry.get<size_t>() - 1];
    if (slot != -1) return linear.Wrong(key, "every layer in exactly one of kda_layers and full_attn_layers", entry);
    slot = static_cast<int>(kind);
  }
  return {};
}

Status ReadLayers(const Section& text, const Section& linear, ModelSpec& spec) {
  DFIN_TRY(const int64_t count, text.Int("num_hidden_layers", 1, kMaxLayers));
  DFIN_TRY(const int64_t dense, text.Int("first_k_dense_replace", 0, count - 1));
  std::vector<int> kinds(static_cast<size_t>(count), -1);
  DFIN_TRY_VOID(ReadLayerList(linear, "kda_layers", AttentionKind::kKda, kinds));
  DFIN_TRY_VOID(ReadLayerList(linear, "full_attn_layers", AttentionKind::kMla, kinds));
  for (int64_t l = 0; l < count; ++l) {
    const int kind = kinds[static_cast<size_t>(l)];
    if (kind == -1)
      return Fail(ErrorCode::kUnsupported, linear.where(),
                  ": kda_layers, full_attn_layers: expected every layer from 1 to ", count,
                  " in one of them, got neither with layer ", l + 1);
    LayerSpec layer;
    layer.attention = static_cast<AttentionKind>(kind);
    layer.feed_forward = l < dense ? FeedForwardKind::kDense : FeedForwardKind::kMoe;
    layer.opens_block = l % spec.attn_res_block_size == 0;
    if (layer.attention == AttentionKind::kKda)
      layer.kda_index = static_cast<int32_t>(spec.num_kda_layers++);
    else
      layer.mla_index = static_cast<int32_t>(spec.num_mla_layers++);
    if (layer.feed_forward == FeedForwardKind::kMoe) ++spec.num_moe_layers;
    spec.layers.push_back(layer);
  }
  return {};
}

Status ReadEndIds(const Section& outer, const Section& text, ModelSpec& spec) {
  const Section& section = outer.Find("eos_token_id") != nullptr ? outer : text;
  const std::string wanted = Cat("an id below vocab_size (", spec.vocab_size, ") or a list of them");
  const Json* value = section.Find("eos_token_id");
  if (value == nullptr) return section.Missing("eos_token_id", wanted);
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.empty() || list.size() > kMaxEndIds) return section.Wrong("eos_token_id", wanted, *value);
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= spec.vocab_size) return section.Wrong("eos_token_id", wanted, id);
    spec.eos_token_ids.push_back(id.get<int32_t>());
  }
  return {};
}

Status CheckSizes(const Section& text, const ModelSpec& spec) {
  DFIN_TRY_VOID(text.ExpectIfPresent("num_key_value_heads", spec.mla_heads));
  const std::pair<const char*, int64_t> columns[] = {{"routed_expert_hidden_size", spec.routed_expert_hidden_size},
                                                     {"moe_intermediate_size", spec.moe_intermediate_size}};
  for (const auto& [key, value] : columns)
    if (value % kMxfp4Group != 0) return text.Wrong(key, Cat("a multiple of ", kMxfp4Group), value);
  if (spec.num_experts_per_token > spec.num_experts)
    return text.Wrong("num_experts_per_token", Cat("at most num_experts (", spec.num_experts, ")"),
                      spec.num_experts_per_token);
  const int64_t record = ExpertGeometry(spec).record_bytes();
  if (record > kMaxRecordBytes)
    return text.Wrong("moe_intermediate_size", Cat("an expert of at most ", kMaxRecordBytes, " bytes"), record);
  const int64_t experts = spec.num_experts * static_cast<int64_t>(spec.layers.size());
  if (experts > kMaxExpertsInAll)
    return text.Wrong("num_experts", Cat("at most ", kMaxExpertsInAll, " experts in all layers"), experts);
  return {};
}

}  // namespace

Result<ModelSpec> ModelSpec::FromConfig(const Json& config, const std::string& what) {
  DFIN_TRY(const Section outer, Section::Root(config, what));
  // The architecture first: for another model, every other complaint would mislead.
  DFIN_TRY_VOID(outer.Expect("model_type", "kimi_k3"));
  DFIN_TRY(const Section text, outer.Object("text_config"));
  DFIN_TRY_VOID(CheckArchitecture(outer, text));
  DFIN_TRY(const Section linear, text.Object("linear_attn_config"));
  DFIN_TRY_VOID(CheckArithmetic(text, linear));
  if (outer.Find("quantization_config") != nullptr) DFIN_TRY_VOID(CheckQuantization(outer));
  if (text.Find("quantization_config") != nullptr || outer.Find("quantization_config") == nullptr)
    DFIN_TRY_VOID(CheckQuantization(text));

  ModelSpec spec;
  DFIN_TRY_VOID(ReadIntegers(text, kTextKeys, spec));
  DFIN_TRY_VOID(ReadIntegers(linear, kLinearAttentionKeys, spec));
  DFIN_TRY(spec.rms_norm_eps, text.Float("rms_norm_eps", 0, 0.1));
  DFIN_TRY(spec.situ_beta, text.Float("activation_situ_beta", 0, 1e4));
  DFIN_TRY(spec.situ_linear_beta, text.Float("activation_situ_linear_beta", 0, 1e4));
  DFIN_TRY(spec.routed_scaling_factor, text.Float("routed_scaling_factor", 0, 1e4));
  DFIN_TRY(spec.gate_lower_bound, linear.Float("gate_lower_bound", -100, -1e-6));
  DFIN_TRY_VOID(ReadLayers(text, linear, spec));
  DFIN_TRY_VOID(ReadEndIds(outer, text, spec));
  DFIN_TRY_VOID(CheckSizes(text, spec));
  return spec;
}

Result<ModelSpec> ModelSpec::FromConfigText(std::string_view text, const std::string& what) {
  DFIN_TRY(const Json config, ParseJson(text, what));
  return FromConfig(config, what);
}

std::string ModelSpec::ArchitectureName(std::string_view config_text) {
  const Result<Json> config = ParseJson(config_text, "config.json");
  if (!config || !config->is_object()) return "";
  const auto list = config->find("architectures");
  if (list == config->end() || !list->is_array() || list->empty() || !list->front().is_string()) return "";
  return list->front().get<std::string>();
}

}  // namespace deltafin
