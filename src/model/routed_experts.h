// RoutedExperts: the experts of one layer: group rows by expert, fetch, run as they arrive, sum in a fixed order.
//
// Start() groups the rows of the step by expert and asks the cache for all of them, ascending; reads begin and the
// caller goes on with work that needs no routed expert. Finish() runs each expert on the rows that chose it and sums
// each token's experts in ascending expert index. A step of few rows takes experts as they arrive, each token's into a
// row of `partial` of its own, and sums at the end: arrival order never reaches the result. A step of many
// (Activations::kRowsAtOnce) takes them ascending and adds each as it comes, with the same bits and without that
// memory. Each expert is read at most once per call, however many rows chose it. Tables are sized in the constructor;
// nothing is allocated later. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/cancel.h"
#include "base/result.h"
#include "cache/expert_cache.h"
#include "model/activations.h"
#include "spec/model_spec.h"

namespace deltafin {

class RoutedExperts {
 public:
  RoutedExperts(const ModelSpec& spec, Backend& backend, ExpertCache& cache, int64_t max_rows);

  // `expert_ids` [R * top_k], each row's ids distinct.
  void Start(int32_t layer, std::span<const int32_t> expert_ids);
  // Reads a.moe.latent and a.moe.expert_weights, fills a.moe.mixed. After an error the cache is ready for another
  // layer.
  Status Finish(Activations& a, CancelToken cancel);

  // Those of the last Start(), ascending.
  std::span<const int32_t> distinct() const { return distinct_; }
  // Distinct experts asked for so far, summed over layers and steps.
  uint64_t distinct_total() const { return distinct_total_; }

 private:
  // Whether this step adds experts as they come.
  bool AddsAtOnce() const;
  void RunExpert(Activations& a, const ExpertWeights& w, size_t i);

  const ModelSpec& spec_;
  Backend& backend_;
  ExpertCache& cache_;
  uint64_t distinct_total_ = 0;
  size_t routes_ = 0;
  // The rows of distinct expert i are entries [first_[i], first_[i + 1]) of token_row_ and partial_row_.
  std::vector<int32_t> distinct_;     // ascending expert index
  std::vector<int32_t> first_;        // [distinct + 1]
  std::vector<int32_t> rows_of_;      // [distinct]
  std::vector<int32_t> token_row_;    // [R * top_k]
  std::vector<int32_t> partial_row_;  // [R * top_k] = token row * top_k + slot
  std::vector<int32_t> order_;        // [R * top_k] per row its slots by ascending expert index
  std::vector<int32_t> per_expert_;   // [E] scratch
  std::vector<int32_t> row_numbers_;  // 0, 1, 2, ...: where an expert's rows go when it is added at once
};

}  // namespace deltafin
