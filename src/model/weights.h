// weights.h: one layer's dense weights as named views, by the checkpoint's names.
//
// H hidden_size, W heads * head_dim of KDA, h heads, d head_dim, L routed_expert_hidden_size, E num_experts. Views
// point into a UnitPin and live as long as it does. Which fields are set depends on the layer's kinds.
#pragma once

#include "checkpoint/tensor_store.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

struct KdaWeights {
  TensorView q_proj, k_proj, v_proj, g_proj;  // [W, H] BF16
  TensorView f_a_proj;                        // [d, H] BF16
  TensorView f_b_proj;                        // [W, d] BF16
  TensorView b_proj;                          // [h, H] BF16
  TensorView q_conv1d, k_conv1d, v_conv1d;    // [W, 1, taps] F32
  TensorView A_log;                           // [>= h] F32, the first h entries are read
  TensorView dt_bias;                         // [W] F32
  TensorView o_norm;                          // [d] F32
  TensorView o_proj;                          // [H, W] BF16
};

struct MlaWeights {
  TensorView q_a_proj;            // [q_lora_rank, H] BF16
  TensorView q_a_layernorm;       // [q_lora_rank] BF16
  TensorView q_b_proj;            // [h * (nope + rope), q_lora_rank] BF16
  TensorView kv_a_proj_with_mqa;  // [kv_lora_rank + rope, H] BF16
  TensorView kv_a_layernorm;      // [kv_lora_rank] BF16
  TensorView kv_b_proj;           // [h * (nope + v), kv_lora_rank] BF16
  TensorView g_proj;              // [h * v, H] BF16
  TensorView o_proj;              // [H, h * v] BF16
};

struct MlpWeights {
  TensorView gate_proj, up_proj;  // [I, H] BF16
  TensorView down_proj;           // [H, I] BF16
};

struct MoeWeights {
  TensorView gate;                     // router [E, H] BF16
  TensorView e_score_correction_bias;  // [E] F32
  TensorView routed_expert_down_proj;  // [L, H] BF16
  TensorView routed_expert_norm;       // [L] BF16
  TensorView routed_expert_up_proj;    // [H, L] BF16
  MlpWeights shared_experts;           // I = num_shared_experts * moe_intermediate_size
};

struct LayerWeights {
  TensorView input_layernorm, post_attention_layernorm;  // [H] BF16
  TensorView self_attention_res_norm, mlp_res_norm;      // [H] BF16
  TensorView self_attention_res_proj, mlp_res_proj;      // [1, H] BF16
  KdaWeights kda;
  MlaWeights mla;
  MlpWeights mlp;
  MoeWeights moe;
};

// What decides a layer's experts.
struct RouterWeights {
  TensorView post_attention_layernorm;  // [H] BF16
  TensorView mlp_res_norm;              // [H] BF16
  TensorView mlp_res_proj;              // [1, H] BF16
  TensorView gate;                      // [E, H] BF16
  TensorView e_score_correction_bias;   // [E] F32
};

struct HeadWeights {
  TensorView lm_head;               // [vocab, H] BF16
  TensorView norm;                  // [H] BF16
  TensorView output_attn_res_norm;  // [H] BF16
  TensorView output_attn_res_proj;  // [1, H] BF16
};

LayerWeights ViewLayer(const LayerSpec& layer, const UnitPin& pin);
RouterWeights ViewRouter(const UnitPin& pin);  // of a layer with routed experts
HeadWeights ViewHead(const UnitPin& pin);

}  // namespace deltafin
