// Kimi K3 text backbone. Section and equation numbers: K3 technical report, section 2.
#include "model/forward.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "model/residual_mix.h"
#include "model/weights.h"

namespace deltafin {
namespace {

// The reference builds the norms of the two MLA low-rank paths with its class default, not with rms_norm_eps.
constexpr float kLowRankNormEps = 1e-6f;

void TapRows(Model& m, int32_t layer, const char* what, const Rows& rows) {
  if (m.tap != nullptr) m.tap->OnRows("layers." + std::to_string(layer) + "." + what, rows);
}

void RmsNorm(Model& m, const TensorView& weight, const Rows& x, const Rows& out) {
  m.backend.RmsNorm({.x = x, .weight = weight, .eps = m.spec.rms_norm_eps, .out = out});
}

Status Embed(Model& m, const StepBatch& batch) {
  DFIN_TRY(const TensorView rows, m.dense.EmbeddingRows(batch.tokens, batch.cancel));
  m.backend.Embed({.table = rows, .ids = std::span(m.row_numbers).first(batch.tokens.size()), .out = m.a.prefix_sum});
  if (m.tap != nullptr) m.tap->OnRows("embedding", m.a.prefix_sum);
  return {};
}

// Section 2.2, Eq. 9-10.
void MixResiduals(Model& m, const TensorView& proj, const TensorView& norm) {
  MixResiduals(m.backend, m.a, proj, norm, m.spec.rms_norm_eps, m.a.x);
}

// Heads that attention takes in one go: [first, first + count).
struct Heads {
  int64_t first = 0, count = 0;
};

// One sequence's rows through some heads, from their projections to kda.out.
void KdaSegment(Model& m, const LayerSpec& layer, const KdaWeights& w, const Segment& s, const Heads& h) {
  auto& t = m.a.kda;
  const int64_t d = m.spec.kda_head_dim, first = h.first * d, width = h.count * d;
  const SequenceState::KdaLayer state = s.state->NextKda(layer.kda_index);
  const auto of = [&](const Rows& rows) { return rows.Slice(s.first_row, s.rows).Columns(0, width); };
  const auto convolve = [&](const Rows& x, const TensorView& kernel, const SequenceState::KdaLayer::Tail& tail,
                            const Rows& out) {
    m.backend.ShortConv({.x = of(x),
                         .kernel = kernel.SliceFirst(first, width),
                         .tail = tail.before.Columns(first, width),
                         .next_tail = tail.after.Columns(first, width),
                         .out = of(out)});
  };
  convolve(t.q_proj, w.q_conv1d, state.q_tail, t.q);
  convolve(t.k_proj, w.k_conv1d, state.k_tail, t.k);
  convolve(t.v_proj, w.v_conv1d, state.v_tail, t.v);
  m.backend.Kda({.q = of(t.q),
                 .k = of(t.k),
                 .v = of(t.v),
                 .raw_decay = of(t.decay),
                 .raw_beta = t.beta.Slice(s.first_row, s.rows).Columns(h.first, h.count),
                 .a_log = w.A_log.Elements(h.first, h.count),
                 .dt_bias = w.dt_bias.Elements(first, width),
                 .lower_bound = m.spec.gate_lower_bound,
                 .heads = h.count,
                 .head_dim = d,
                 .before = state.s_before + first * d,
                 .after = state.s_after + first * d,
                 .out = t.out.Slice(s.first_row, s.rows).Columns(first, width)});
  if (s.replay != nullptr)
    s.replay->Keep(layer.kda_index, h.first,
                   {of(t.q_proj), of(t.k_proj), of(t.v_proj), of(t.k), of(t.v), of(t.decay),
                    t.beta.Slice(s.first_row, s.rows).Columns(h.first, h.count), w.A_log.Elements(h.first, h.count),
                    w.dt_bias.Elements(first, width)});
}

// Section 2.1.1, Eq. 1-6: x -> y.
void KimiDeltaAttention(Model& m, const LayerSpec& layer, const KdaWeights& w, const StepBatch& batch) {
  auto& t = m.a.kda;
  const int64_t d = m.spec.kda_head_dim;
  for (Heads h; h.first < m.spec.kda_heads; h.first += h.count) {
    h.count = std::min(t.heads, m.spec.kda_heads - h.first);
    const int64_t first = h.first * d, width = h.count * d;
    const auto of = [&](const Rows& rows) { return rows.Columns(0, width); };
    const LinearGroupArgs::Part projections[] = {{w.q_proj, of(t.q_proj), first},
                                                 {w.k_proj, of(t.k_proj), first},
                                                 {w.v_proj, of(t.v_proj), first},
                                                 {w.g_proj, of(t.gate), first},
                                                 {w.f_a_proj, t.f_a},
                                                 {w.b_proj, t.beta}};
    // The last two are of all heads.
    m.backend.LinearGroup({.x = m.a.x, .parts = std::span(projections).first(h.first == 0 ? 6 : 4)});
    const LinearGroupArgs::Part decay = {w.f_b_proj, of(t.decay), first};
    m.backend.LinearGroup({.x = t.f_a, .parts = {&decay, 1}});
    for (const Segment& s : batch.segments) KdaSegment(m, layer, w, s, h);
    const Rows out = t.out.Columns(first, width);
    m.backend.GatedHeadNorm(
        {.x = out, .gate = of(t.gate), .weight = w.o_norm, .eps = m.spec.rms_norm_eps, .heads = h.count, .out = out});
  }
  m.backend.Linear({.weight = w.o_proj, .x = t.out, .out = m.a.y});
}

// The latents of a segment's rows and their shared key part go into its cache, page by page.
void KeepLatents(Model& m, const LayerSpec& layer, const Segment& s) {
  for (int64_t done = 0; done < s.rows;) {
    const PackedRows fresh = s.state->NextMla(layer.mla_index, done, s.rows - done);
    m.backend.Store({.x = m.a.mla.kv_a.Slice(s.first_row + done, fresh.rows), .out = fresh});
    done += fresh.rows;
  }
}

// Section 2.1.2, Eq. 7: x -> y. No position encoding: the rope part of keys and queries is used unrotated.
void GatedMla(Model& m, const LayerSpec& layer, const MlaWeights& w, const StepBatch& batch) {
  const ModelSpec& spec = m.spec;
  auto& t = m.a.mla;
  const int64_t query = spec.qk_nope_head_dim + spec.qk_rope_head_dim, value = spec.v_head_dim;
  for (Heads h; h.first < spec.mla_heads; h.first += h.count) {
    h.count = std::min(t.heads, spec.mla_heads - h.first);
    const Rows q = t.q.Columns(0, h.count * query), gate = t.gate.Columns(0, h.count * value);
    const Rows out = t.out.Columns(h.first * value, h.count * value);
    const LinearGroupArgs::Part projections[] = {
        {w.g_proj, gate, h.first * value}, {w.q_a_proj, t.q_a}, {w.kv_a_proj_with_mqa, t.kv_a}};
    // The last two are of all heads.
    m.backend.LinearGroup({.x = m.a.x, .parts = std::span(projections).first(h.first == 0 ? 3 : 1)});
    if (h.first == 0) {
      m.backend.RmsNorm({.x = t.q_a, .weight = w.q_a_layernorm, .eps = kLowRankNormEps, .out = t.q_a});
      const Rows latent = t.kv_a.Columns(0, spec.kv_lora_rank);
      m.backend.RmsNorm({.x = latent, .weight = w.kv_a_layernorm, .eps = kLowRankNormEps, .out = latent});
      for (const Segment& s : batch.segments) KeepLatents(m, layer, s);
    }
    const LinearGroupArgs::Part queries = {w.q_b_proj, q, h.first * query};
    m.backend.LinearGroup({.x = t.q_a, .parts = {&queries, 1}});
    const int64_t keys_and_values = spec.qk_nope_head_dim + value;
    for (const Segment& s : batch.segments) {
      m.backend.MlaAttend({.q = q.Slice(s.first_row, s.rows),
                           .kv_b_proj = w.kv_b_proj.SliceFirst(h.first * keys_and_values, h.count * keys_and_values),
                           .cache = s.state->MlaView(layer.mla_index, s.rows),
                           .first_position = s.state->length(),
                           .heads = h.count,
                           .nope = spec.qk_nope_head_dim,
                           .rope = spec.qk_rope_head_dim,
                           .v_dim = value,
                           .latent = spec.kv_lora_rank,
                           .out = out.Slice(s.first_row, s.rows)});
    }
    m.backend.SigmoidGate({.x = out, .gate = gate});
  }
  m.backend.Linear({.weight = w.o_proj, .x = t.out, .out = m.a.y});
}

// SiTU-GLU, Eq. 12: x -> y through a hidden layer that is held in gate and up, for as many rows at a time as they have.
void Mlp(Model& m, const MlpWeights& w, const Rows& gate, const Rows& up) {
  for (int64_t first = 0; first < m.a.x.rows; first += gate.rows) {
    const int64_t rows = std::min(gate.rows, m.a.x.rows - first);
    const Rows hidden = gate.Slice(0, rows), linear = up.Slice(0, rows);
    const LinearGroupArgs::Part projections[] = {{w.gate_proj, hidden}, {w.up_proj, linear}};
    m.backend.LinearGroup({.x = m.a.x.Slice(first, rows), .parts = projections});
    m.backend.SituGlu({.gate = hidden,
                       .up = linear,
                       .beta = m.spec.situ_beta,
                       .linear_beta = m.spec.situ_linear_beta,
                       .out = hidden});
    m.backend.Linear({.weight = w.down_proj, .x = hidden, .out = m.a.y.Slice(first, rows)});
  }
}

// Section 2.3, Eq. 11 and 13: x -> y. The router runs first, so that the experts are being read while the projection
// into their latent space and the shared experts are computed; behind them, at low priority, those that the next layer
// will probably want.
Status StableLatentMoe(Model& m, int32_t layer, const MoeWeights& w, CancelToken cancel) {
  const ModelSpec& spec = m.spec;
  auto& t = m.a.moe;
  m.backend.Router({.x = m.a.x,
                    .weight = w.gate,
                    .bias = w.e_score_correction_bias,
                    .top_k = spec.num_experts_per_token,
                    .scaling = spec.routed_scaling_factor,
                    .scores = t.scores,
                    .expert_ids = t.expert_ids,
                    .expert_weights = t.expert_weights});
  m.experts.Start(layer, t.expert_ids);
  m.lookahead.OnRouted(layer, t.expert_ids, m.experts.distinct(), m.a);
  if (m.tap != nullptr) {
    m.tap->OnIds("layers." + std::to_string(layer) + ".route_ids", t.expert_ids, spec.num_experts_per_token);
    TapRows(m, layer, "route_weights", Rows(t.expert_weights.data(), m.a.x.rows, spec.num_experts_per_token));
  }
  m.backend.Linear({.weight = w.routed_expert_down_proj, .x = m.a.x, .out = t.latent});
  Mlp(m, w.shared_experts, t.shared_gate, t.shared_up);
  DFIN_TRY_VOID(m.experts.Finish(m.a, cancel));
  RmsNorm(m, w.routed_expert_norm, t.mixed, t.mixed);
  m.backend.Linear({.weight = w.routed_expert_up_proj, .x = t.mixed, .out = t.up});
  m.backend.Add({.x = t.up, .out = m.a.y});
  return {};
}

Status Layer(Model& m, int32_t l, const StepBatch& batch) {
  const LayerSpec& layer = m.spec.layers[static_cast<size_t>(l)];
  DFIN_TRY(const UnitPin pin, m.dense.PinUnit(l, batch.cancel));
  const LayerWeights w = ViewLayer(layer, pin);

  MixResiduals(m, w.self_attention_res_proj, w.self_attention_res_norm);
  RmsNorm(m, w.input_layernorm, m.a.x, m.a.x);
  if (layer.attention == AttentionKind::kKda)
    KimiDeltaAttention(m, layer, w.kda, batch);
  else
    GatedMla(m, layer, w.mla, batch);
  TapRows(m, l, "attention", m.a.y);
  if (layer.opens_block) {
    m.a.PushBlock();  // the new running sum starts from the attention output alone
    m.backend.Copy({.x = m.a.y, .out = m.a.prefix_sum});
  } else {
    m.backend.Add({.x = m.a.y, .out = m.a.prefix_sum});
  }

  MixResiduals(m, w.mlp_res_proj, w.mlp_res_norm);
  RmsNorm(m, w.post_attention_layernorm, m.a.x, m.a.x);
  if (layer.feed_forward == FeedForwardKind::kDense)
    Mlp(m, w.mlp, m.a.dense.gate, m.a.dense.up);
  else
    DFIN_TRY_VOID(StableLatentMoe(m, l, w.moe, batch.cancel));
  TapRows(m, l, "feed_forward", m.a.y);
  m.backend.Add({.x = m.a.y, .out = m.a.prefix_sum});
  TapRows(m, l, "prefix_sum", m.a.prefix_sum);
  if (m.on_output) m.on_output(l, m.a.prefix_sum);
  return {};
}

Status OutputLogits(Model& m, const StepBatch& batch) {
  const int64_t wanted = batch.rows() - batch.logits_from;
  if (wanted == 0) return {};
  DFIN_TRY(const UnitPin pin, m.dense.PinUnit(static_cast<int>(m.spec.layers.size()), batch.cancel));
  const HeadWeights w = ViewHead(pin);
  MixResiduals(m, w.output_attn_res_proj, w.output_attn_res_norm);
  RmsNorm(m, w.norm, m.a.x, m.a.x);
  if (m.tap != nullptr) m.tap->OnRows("final_norm", m.a.x);
  m.backend.Linear({.weight = w.lm_head, .x = m.a.x.Slice(batch.logits_from, wanted), .out = batch.logits});
  return {};
}

}  // namespace

Model::Model(const ModelSpec& spec, Backend& backend, TensorStore& dense, ExpertCache& cache, Activations activations)
    : spec(spec),
      backend(backend),
      dense(dense),
      a(std::move(activations)),
      experts(spec, backend, cache, a.max_rows()),
      lookahead(spec, backend, dense, cache),
      row_numbers(static_cast<size_t>(a.max_rows())) {
  std::iota(row_numbers.begin(), row_numbers.end(), 0);
}

WorkspaceLimits WorkspaceFor(const ModelSpec& spec, int64_t max_rows) {
  WorkspaceLimits limits;
  limits.max_rows = max_rows;
  limits.max_inner =
      std::max({spec.hidden_size, spec.intermediate_size, spec.kda_width(), spec.mla_out_width(), spec.q_lora_rank,
                spec.shared_width(), spec.routed_expert_hidden_size, spec.kda_head_dim});
  limits.max_expert_inner = std::max(spec.routed_expert_hidden_size, spec.moe_intermediate_size);
  limits.max_experts = spec.num_experts;
  limits.mla_heads = spec.mla_heads;
  limits.mla_latent_width = spec.latent_width();
  limits.kda_head_dim = spec.kda_head_dim;
  return limits;
}

Status Forward(Model& m, const StepBatch& batch) {
  for (const Segment& s : batch.segments) DFIN_TRY_VOID(s.state->Prepare(s.rows));
  m.a.BeginStep(batch.rows());
  m.dense.ExpectHead(batch.logits_from < batch.rows());
  DFIN_TRY_VOID(Embed(m, batch));
  m.lookahead.OnEmbedded(m.a);
  for (int32_t l = 0; l < static_cast<int32_t>(m.spec.layers.size()); ++l) {
    if (batch.cancel.cancelled()) return Fail(ErrorCode::kCancelled, "stopped before layer ", l);
    if (m.on_layer) m.on_layer(l);
    DFIN_TRY_VOID(Layer(m, l, batch));
    ++m.layer_passes;
  }
  DFIN_TRY_VOID(OutputLogits(m, batch));
  DFIN_TRY_VOID(m.backend.Synchronize());
  for (const Segment& s : batch.segments)
    if (s.replay == nullptr) s.state->Commit(s.rows);
  return {};
}

}  // namespace deltafin
