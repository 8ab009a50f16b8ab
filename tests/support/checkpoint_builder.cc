#include "support/checkpoint_builder.h"

#include "base/check.h"
#include "synth/shapes.h"
#include "synth/synth.h"

namespace deltafin::test {

ModelSpec TinySpec(const TinyCheckpoint& tiny) {
  ModelSpec spec;
  spec.hidden_size = 72;
  spec.vocab_size = tiny.vocabulary;
  spec.intermediate_size = 100;
  spec.attn_res_block_size = 2;
  spec.max_position_embeddings = 512;
  spec.rms_norm_eps = 1e-5f;
  spec.situ_beta = 4;
  spec.situ_linear_beta = 25;
  spec.kda_heads = 3;
  spec.kda_head_dim = 24;
  spec.conv_kernel = 4;
  spec.gate_lower_bound = -5;
  spec.mla_heads = 2;
  spec.q_lora_rank = 40;
  spec.kv_lora_rank = 36;
  spec.qk_nope_head_dim = 20;
  spec.qk_rope_head_dim = 12;
  spec.v_head_dim = 28;
  spec.num_experts = tiny.experts;
  spec.num_experts_per_token = tiny.experts_per_token;
  spec.num_shared_experts = 2;
  spec.routed_expert_hidden_size = 32;
  spec.moe_intermediate_size = 96;
  spec.routed_scaling_factor = 1;
  spec.layers.resize(static_cast<size_t>(tiny.layers));
  spec.layers[0].feed_forward = FeedForwardKind::kDense;
  for (size_t l = 3; l < spec.layers.size(); ++l) spec.layers[l].attention = AttentionKind::kMla;
  Result<ModelSpec> checked = CheckSynthSpec(spec);
  DFIN_CHECK(checked.has_value(), checked ? "" : checked.error().message().c_str());
  return *checked;
}

void BuildTinyCheckpoint(const std::string& folder, const TinyCheckpoint& tiny) {
  SynthOptions options;
  options.spec = TinySpec(tiny);
  options.seed = tiny.seed;
  options.routing = tiny.uniform_routing ? SynthRouting::kUniform : SynthRouting::kSkewed;
  options.folder = folder;
  const Status written = Synthesize(options);
  DFIN_CHECK(written.has_value(), written ? "" : written.error().message().c_str());
}

}  // namespace deltafin::test
