// ModelSpec: what a Kimi K3 checkpoint is, as data: dimensions and the kind of every layer, from config.json.
//
// All dimensions are runtime values, so k3-micro, k3-nano and the release run the same code. Immutable after
// FromConfig. Source: config.json of the release (text_config), K3 technical report section 2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deltafin {

enum class AttentionKind : uint8_t { kKda, kMla };
enum class FeedForwardKind : uint8_t { kDense, kMoe };

struct LayerSpec {
  AttentionKind attention = AttentionKind::kKda;
  FeedForwardKind feed_forward = FeedForwardKind::kMoe;
  bool opens_block = false;  // AttnRes: layer % attn_res_block_size == 0
  int32_t kda_index = -1;    // position among the KDA layers, -1 for MLA
  int32_t mla_index = -1;    // position among the MLA layers, -1 for KDA
};

struct ModelSpec {
  // Stack
  int64_t hidden_size = 0;        // H
  int64_t vocab_size = 0;         // rows of embed_tokens and lm_head
  int64_t intermediate_size = 0;  // dense MLP (layers below first_k_dense_replace)
  int64_t attn_res_block_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  float situ_beta = 0;         // activation_situ_beta
  float situ_linear_beta = 0;  // activation_situ_linear_beta
  // KDA
  int64_t kda_heads = 0;
  int64_t kda_head_dim = 0;  // key and value width of a head
  int64_t conv_kernel = 0;   // short_conv_kernel_size
  float gate_lower_bound = 0;
  // MLA
  int64_t mla_heads = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;  // latent
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // shared key part; no rotation is applied
  int64_t v_head_dim = 0;
  // Mixture of experts
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t num_shared_experts = 0;
  int64_t routed_expert_hidden_size = 0;  // latent the experts work in
  int64_t moe_intermediate_size = 0;
  float routed_scaling_factor = 0;

  std::vector<LayerSpec> layers;
  int64_t num_kda_layers = 0;
  int64_t num_mla_layers = 0;
  int64_t num_moe_layers = 0;

  // Ids that end a generation, from eos_token_id (number or list) of the outer config, else of text_config.
  std::vector<int32_t> eos_token_ids;

  int64_t kda_width() const { return kda_heads * kda_head_dim; }                         // q, k, v, gate
  int64_t q_width() const { return mla_heads * (qk_nope_head_dim + qk_rope_head_dim); }  // q_b_proj
  int64_t kv_width() const { return mla_heads * (qk_nope_head_dim + v_head_dim); }       // kv_b_proj
  int64_t mla_out_width() const { return mla_heads * v_head_dim; }                       // g_proj, o_proj
  int64_t latent_width() const { return kv_lora_rank + qk_rope_head_dim; }               // MLA cache row
  int64_t shared_width() const { return num_shared_experts * moe_intermediate_size; }

  // `what` names the document in errors. Refuses (kUnsupported, kCorrupt) what the engine does not compute: another
  // architecture, a quantisation other than MXFP4 in groups of 32, another activation, router or norm, a missing key, a
  // value out of range, layer lists that do not cover every layer once.
  static Result<ModelSpec> FromConfig(const Json& config, const std::string& what);
  // The same from the document's text.
  static Result<ModelSpec> FromConfigText(std::string_view text, const std::string& what);
  // The first of "architectures", or "" when the text has none: for reports about models that are refused.
  static std::string ArchitectureName(std::string_view config_text);
};

}  // namespace deltafin
