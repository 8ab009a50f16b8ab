// ExpertLookahead: guesses which experts the next layer will want and has them prefetched while this layer is computed.
//
// Two sources: the router of the next layer, applied to what is known of its input now (the running sums before this
// layer's feed-forward and the next attention), and the experts that the last token wanted there. Experts in memory are
// left out; of the others PrefetchGate admits those that usually come true. Guesses are made for steps of a few rows
// (decode), and only while the next layer's weights are in memory: where dense weights are streamed, drives have no
// idle time to fill. After the last layer the first one with experts is next, by its last token alone; its router is
// asked when the next token is known, about the embedding. Never changes a result, only reads. Thread rule: engine
// thread only. No allocation after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cache/expert_cache.h"
#include "cache/prefetch_gate.h"
#include "checkpoint/tensor_store.h"
#include "model/activations.h"
#include "spec/model_spec.h"

namespace deltafin {

struct LookaheadCounters {
  uint64_t wanted = 0;     // experts that layers wanted whose router was asked before
  uint64_t predicted = 0;  // of those, named by it: recall, in memory or not
  uint64_t admitted = 0;   // guesses, by whomever, that were given to the cache to be read ahead
  uint64_t wrong = 0;      // of those, not wanted when the layer came
};

class ExpertLookahead {
 public:
  ExpertLookahead(const ModelSpec& spec, Backend& backend, TensorStore& dense, ExpertCache& cache);

  // The rows of a step are embedded: `a.prefix_sum`. Asks the router of the first layer with experts and prefetches.
  void OnEmbedded(Activations& a);
  // The router of `layer` has spoken: `expert_ids` [R * top_k], `distinct` the same, ascending, each once. Its batch
  // has begun. Asks the next layer's router about the rows of `a` and prefetches.
  void OnRouted(int32_t layer, std::span<const int32_t> expert_ids, std::span<const int32_t> distinct, Activations& a);

  const LookaheadCounters& counters(int32_t layer) const { return counters_[static_cast<size_t>(layer)]; }
  const PrefetchGate& gate() const { return gate_; }

 private:
  // Who guessed: the router at place j (kind j), the same when the last token agrees (top_k + j), the last token alone.
  int32_t LastTokenKind() const { return 2 * top_k_; }
  struct Pending {
    std::vector<ExpertGuess> guesses;  // of experts that were not in memory
    std::vector<int32_t> predicted;    // the router's, distinct
  };

  void Clear(Pending& pending);
  void Learn(int32_t layer, std::span<const int32_t> expert_ids, std::span<const int32_t> distinct);
  void AskRouter(int32_t next, Activations& a, Pending& pending);
  void AddGuess(int32_t layer, int32_t expert, int32_t kind, Pending& pending);
  bool LastTokenWanted(int32_t layer, int32_t expert) const;
  void Prefetch(int32_t layer, Pending& pending);
  // Whether guesses for a step of so many rows about layer `next` are worth making.
  bool Guesses(int64_t rows, int32_t next) const;
  int32_t Following(int32_t layer) const;

  const ModelSpec& spec_;
  Backend& backend_;
  TensorStore& dense_;
  ExpertCache& cache_;
  const int32_t top_k_;
  const bool enabled_;
  int64_t routed_experts_ = 0;  // of all layers
  PrefetchGate gate_;
  std::vector<Pending> pending_;                  // [layers]
  std::vector<std::vector<int32_t>> last_token_;  // [layers] what the last row wanted
  std::vector<LookaheadCounters> counters_;       // [layers]
  std::vector<int32_t> admitted_;                 // scratch
};

}  // namespace deltafin
