#include "model/expert_lookahead.h"

#include <algorithm>

#include "model/residual_mix.h"
#include "model/weights.h"

namespace deltafin {

ExpertLookahead::ExpertLookahead(const ModelSpec& spec, Backend& backend, TensorStore& dense, ExpertCache& cache)
    : spec_(spec),
      backend_(backend),
      dense_(dense),
      cache_(cache),
      top_k_(static_cast<int32_t>(spec.num_experts_per_token)),
      enabled_(cache.prefetch_slots() > 0),
      gate_(static_cast<int64_t>(spec.layers.size()), 2 * spec.num_experts_per_token + 1),
      pending_(spec.layers.size()),
      last_token_(spec.layers.size()),
      counters_(spec.layers.size()) {
  const auto most = static_cast<size_t>((2 * Activations::kLookaheadRows + 1) * top_k_);
  for (const LayerSpec& layer : spec.layers)
    if (layer.feed_forward != FeedForwardKind::kDense) routed_experts_ += spec.num_experts;
  if (!enabled_) return;
  for (Pending& pending : pending_) {
    pending.guesses.reserve(most);
    pending.predicted.reserve(most);
  }
  for (std::vector<int32_t>& last : last_token_) last.reserve(static_cast<size_t>(top_k_));
  admitted_.reserve(most);
}

bool ExpertLookahead::Guesses(int64_t rows, int32_t next) const {
  return rows <= Activations::kLookaheadRows && dense_.IsResident(next) && cache_.resident() < routed_experts_;
}

void ExpertLookahead::OnEmbedded(Activations& a) {
  if (!enabled_ || routed_experts_ == 0) return;
  const int32_t first = Following(-1);
  if (!Guesses(a.x.rows, first)) return;
  Pending& pending = pending_[static_cast<size_t>(first)];
  pending.predicted.clear();  // of a step that was given up
  AskRouter(first, a, pending);
  Prefetch(first, pending);
}

void ExpertLookahead::OnRouted(int32_t layer, std::span<const int32_t> expert_ids, std::span<const int32_t> distinct,
                               Activations& a) {
  if (!enabled_) return;
  if (a.x.rows > Activations::kLookaheadRows) Clear(pending_[static_cast<size_t>(layer)]);  // made for one token
  Learn(layer, expert_ids, distinct);
  const int32_t next = Following(layer);
  Pending& pending = pending_[static_cast<size_t>(next)];
  Clear(pending);  // a step that was given up may have left some
  if (!Guesses(a.x.rows, next)) return;
  if (next > layer) AskRouter(next, a, pending);
  for (const int32_t expert : last_token_[static_cast<size_t>(next)]) AddGuess(next, expert, LastTokenKind(), pending);
  Prefetch(next, pending);
}

void ExpertLookahead::Clear(Pending& pending) {
  gate_.Forget(pending.guesses);
  pending.guesses.clear();
  pending.predicted.clear();
}

void ExpertLookahead::Learn(int32_t layer, std::span<const int32_t> expert_ids, std::span<const int32_t> distinct) {
  const auto l = static_cast<size_t>(layer);
  Pending& pending = pending_[l];
  gate_.Learn(layer, pending.guesses, distinct);
  for (const ExpertGuess& guess : pending.guesses) {
    if (!guess.admitted) continue;
    ++counters_[l].admitted;
    counters_[l].wrong += std::binary_search(distinct.begin(), distinct.end(), guess.expert) ? 0 : 1;
  }
  if (!pending.predicted.empty()) {
    counters_[l].wanted += distinct.size();
    for (const int32_t expert : pending.predicted)
      counters_[l].predicted += std::binary_search(distinct.begin(), distinct.end(), expert) ? 1 : 0;
  }
  pending.guesses.clear();
  pending.predicted.clear();
  const std::span<const int32_t> last_row = expert_ids.last(static_cast<size_t>(top_k_));
  last_token_[l].assign(last_row.begin(), last_row.end());
}

// What the next layer's feed-forward does before it routes (model/forward.cc), with what is known so far.
void ExpertLookahead::AskRouter(int32_t next, Activations& a, Pending& pending) {
  const Result<UnitPin> pin = dense_.PinUnit(next);
  if (!pin) return;
  const RouterWeights w = ViewRouter(*pin);
  auto& t = a.lookahead;
  MixResiduals(backend_, a, w.mlp_res_proj, w.mlp_res_norm, spec_.rms_norm_eps, t.x);
  backend_.RmsNorm({.x = t.x, .weight = w.post_attention_layernorm, .eps = spec_.rms_norm_eps, .out = t.x});
  backend_.Router({.x = t.x,
                   .weight = w.gate,
                   .bias = w.e_score_correction_bias,
                   .top_k = spec_.num_experts_per_token,
                   .scaling = spec_.routed_scaling_factor,
                   .scores = t.scores,
                   .expert_ids = t.expert_ids,
                   .expert_weights = t.expert_weights});
  // Place by place, so that an expert counts with the best place that a row gives it.
  for (int32_t place = 0; place < top_k_; ++place) {
    for (int64_t row = 0; row < t.x.rows; ++row) {
      const int32_t expert = t.expert_ids[static_cast<size_t>(row * top_k_ + place)];
      if (std::find(pending.predicted.begin(), pending.predicted.end(), expert) != pending.predicted.end()) continue;
      pending.predicted.push_back(expert);
      AddGuess(next, expert, LastTokenWanted(next, expert) ? top_k_ + place : place, pending);
    }
  }
}

bool ExpertLookahead::LastTokenWanted(int32_t layer, int32_t expert) const {
  const std::vector<int32_t>& last = last_token_[static_cast<size_t>(layer)];
  return std::find(last.begin(), last.end(), expert) != last.end();
}

void ExpertLookahead::AddGuess(int32_t layer, int32_t expert, int32_t kind, Pending& pending) {
  const auto same = [expert](const ExpertGuess& guess) { return guess.expert == expert; };
  const auto old = std::find_if(pending.guesses.begin(), pending.guesses.end(), same);
  if (old != pending.guesses.end()) {
    // The last token's alone until the router named it too.
    if (old->kind == LastTokenKind() && !old->admitted) old->kind = kind;
    return;
  }
  if (!cache_.Keep({layer, expert})) pending.guesses.push_back({.expert = expert, .kind = kind});
}

void ExpertLookahead::Prefetch(int32_t layer, Pending& pending) {
  const ExpertCacheCounters& c = cache_.counters();
  const uint64_t bytes = c.demand_bytes + c.prefetch_useful_bytes + c.prefetch_wasted_bytes;
  gate_.Admit(layer, pending.guesses, static_cast<double>(bytes) / static_cast<double>(cache_.record_bytes()));
  admitted_.clear();
  for (const ExpertGuess& guess : pending.guesses)
    if (guess.admitted) admitted_.push_back(guess.expert);
  cache_.Prefetch(layer, admitted_);
}

int32_t ExpertLookahead::Following(int32_t layer) const {
  const auto layers = static_cast<int32_t>(spec_.layers.size());
  for (int32_t next = (layer + 1) % layers;; next = (next + 1) % layers)
    if (spec_.layers[static_cast<size_t>(next)].feed_forward != FeedForwardKind::kDense) return next;
}

}  // namespace deltafin
