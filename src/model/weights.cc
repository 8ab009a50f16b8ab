#include "model/weights.h"

namespace deltafin {
namespace {

KdaWeights ViewKda(const UnitPin& pin) {
  KdaWeights w;
  w.q_proj = pin.Get("self_attn.q_proj.weight");
  w.k_proj = pin.Get("self_attn.k_proj.weight");
  w.v_proj = pin.Get("self_attn.v_proj.weight");
  w.g_proj = pin.Get("self_attn.g_proj.weight");
  w.f_a_proj = pin.Get("self_attn.f_a_proj.weight");
  w.f_b_proj = pin.Get("self_attn.f_b_proj.weight");
  w.b_proj = pin.Get("self_attn.b_proj.weight");
  w.q_conv1d = pin.Get("self_attn.q_conv1d.weight");
  w.k_conv1d = pin.Get("self_attn.k_conv1d.weight");
  w.v_conv1d = pin.Get("self_attn.v_conv1d.weight");
  w.A_log = pin.Get("self_attn.A_log");
  w.dt_bias = pin.Get("self_attn.dt_bias");
  w.o_norm = pin.Get("self_attn.o_norm.weight");
  w.o_proj = pin.Get("self_attn.o_proj.weight");
  return w;
}

MlaWeights ViewMla(const UnitPin& pin) {
  MlaWeights w;
  w.q_a_proj = pin.Get("self_attn.q_a_proj.weight");
  w.q_a_layernorm = pin.Get("self_attn.q_a_layernorm.weight");
  w.q_b_proj = pin.Get("self_attn.q_b_proj.weight");
  w.kv_a_proj_with_mqa = pin.Get("self_attn.kv_a_proj_with_mqa.weight");
  w.kv_a_layernorm = pin.Get("self_attn.kv_a_layernorm.weight");
  w.kv_b_proj = pin.Get("self_attn.kv_b_proj.weight");
  w.g_proj = pin.Get("self_attn.g_proj.weight");
  w.o_proj = pin.Get("self_attn.o_proj.weight");
  return w;
}

MoeWeights ViewMoe(const UnitPin& pin) {
  MoeWeights w;
  w.gate = pin.Get("block_sparse_moe.gate.weight");
  w.e_score_correction_bias = pin.Get("block_sparse_moe.gate.e_score_correction_bias");
  w.routed_expert_down_proj = pin.Get("block_sparse_moe.routed_expert_down_proj.weight");
  w.routed_expert_norm = pin.Get("block_sparse_moe.routed_expert_norm.weight");
  w.routed_expert_up_proj = pin.Get("block_sparse_moe.routed_expert_up_proj.weight");
  w.shared_experts.gate_proj = pin.Get("block_sparse_moe.shared_experts.gate_proj.weight");
  w.shared_experts.up_proj = pin.Get("block_sparse_moe.shared_experts.up_proj.weight");
  w.shared_experts.down_proj = pin.Get("block_sparse_moe.shared_experts.down_proj.weight");
  return w;
}

}  // namespace

RouterWeights ViewRouter(const UnitPin& pin) {
  return {.post_attention_layernorm = pin.Get("post_attention_layernorm.weight"),
          .mlp_res_norm = pin.Get("mlp_res_norm.weight"),
          .mlp_res_proj = pin.Get("mlp_res_proj.weight"),
          .gate = pin.Get("block_sparse_moe.gate.weight"),
          .e_score_correction_bias = pin.Get("block_sparse_moe.gate.e_score_correction_bias")};
}

LayerWeights ViewLayer(const LayerSpec& layer, const UnitPin& pin) {
  LayerWeights w;
  w.input_layernorm = pin.Get("input_layernorm.weight");
  w.post_attention_layernorm = pin.Get("post_attention_layernorm.weight");
  w.self_attention_res_norm = pin.Get("self_attention_res_norm.weight");
  w.self_attention_res_proj = pin.Get("self_attention_res_proj.weight");
  w.mlp_res_norm = pin.Get("mlp_res_norm.weight");
  w.mlp_res_proj = pin.Get("mlp_res_proj.weight");
  if (layer.attention == AttentionKind::kKda)
    w.kda = ViewKda(pin);
  else
    w.mla = ViewMla(pin);
  if (layer.feed_forward == FeedForwardKind::kDense) {
    w.mlp = {pin.Get("mlp.gate_proj.weight"), pin.Get("mlp.up_proj.weight"), pin.Get("mlp.down_proj.weight")};
  } else {
    w.moe = ViewMoe(pin);
  }
  return w;
}

HeadWeights ViewHead(const UnitPin& pin) {
  return {pin.Get("language_model.lm_head.weight"), pin.Get("language_model.model.norm.weight"),
          pin.Get("language_model.model.output_attn_res_norm.weight"),
          pin.Get("language_model.model.output_attn_res_proj.weight")};
}

}  // namespace deltafin
