#include "model/routed_experts.h"

#include <algorithm>
#include <numeric>

namespace deltafin {

RoutedExperts::RoutedExperts(const ModelSpec& spec, Backend& backend, ExpertCache& cache, int64_t max_rows)
    : spec_(spec), backend_(backend), cache_(cache) {
  const auto routes = static_cast<size_t>(max_rows * spec.num_experts_per_token);
  distinct_.reserve(static_cast<size_t>(spec.num_experts));
  first_.reserve(static_cast<size_t>(spec.num_experts + 1));
  rows_of_.reserve(static_cast<size_t>(spec.num_experts));
  token_row_.resize(routes);
  partial_row_.resize(routes);
  order_.resize(routes);
  per_expert_.resize(static_cast<size_t>(spec.num_experts));
  row_numbers_.resize(static_cast<size_t>(max_rows));
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
}

bool RoutedExperts::AddsAtOnce() const {
  return routes_ > static_cast<size_t>(Activations::kRowsAtOnce * spec_.num_experts_per_token);
}

void RoutedExperts::Start(int32_t layer, std::span<const int32_t> expert_ids) {
  const auto top_k = static_cast<size_t>(spec_.num_experts_per_token);
  routes_ = expert_ids.size();

  // A counting sort of the routes by expert; inside an expert they stay in row order.
  std::fill(per_expert_.begin(), per_expert_.end(), 0);
  for (const int32_t e : expert_ids) ++per_expert_[static_cast<size_t>(e)];
  distinct_.clear();
  first_.clear();
  rows_of_.clear();
  int32_t next = 0;
  for (size_t e = 0; e < per_expert_.size(); ++e) {
    if (per_expert_[e] == 0) continue;
    distinct_.push_back(static_cast<int32_t>(e));
    first_.push_back(next);
    const int32_t count = per_expert_[e];
    rows_of_.push_back(count);
    per_expert_[e] = next;  // from here on: where the expert's next route goes
    next += count;
  }
  first_.push_back(next);
  for (size_t route = 0; route < routes_; ++route) {
    const auto at = static_cast<size_t>(per_expert_[static_cast<size_t>(expert_ids[route])]++);
    token_row_[at] = static_cast<int32_t>(route / top_k);
    partial_row_[at] = static_cast<int32_t>(route);
  }
  for (size_t row = 0; row < routes_; row += top_k) {
    const auto slots = std::span(order_).subspan(row, top_k);
    for (size_t j = 0; j < top_k; ++j) slots[j] = static_cast<int32_t>(j);
    std::sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) {
      return expert_ids[row + static_cast<size_t>(a)] < expert_ids[row + static_cast<size_t>(b)];
    });
  }
  distinct_total_ += distinct_.size();
  cache_.Begin(layer, distinct_, rows_of_, AddsAtOnce() ? ExpertOrder::kAscending : ExpertOrder::kArrival);
}

// Distinct expert `i` on its rows.
void RoutedExperts::RunExpert(Activations& a, const ExpertWeights& w, size_t i) {
  const auto begin = static_cast<size_t>(first_[i]);
  const auto count = static_cast<size_t>(first_[i + 1]) - begin;
  const std::span<const int32_t> routes = std::span(partial_row_).subspan(begin, count);
  backend_.ExpertMlp({.w1 = w.w1,
                      .w3 = w.w3,
                      .w2 = w.w2,
                      .beta = spec_.situ_beta,
                      .linear_beta = spec_.situ_linear_beta,
                      .x = a.moe.latent,
                      .x_rows = std::span(token_row_).subspan(begin, count),
                      .out = a.moe.partial,
                      .out_rows = AddsAtOnce() ? std::span<const int32_t>(row_numbers_).first(count) : routes});
  if (!AddsAtOnce()) return;
  backend_.AddExpert({.partial = a.moe.partial.Slice(0, static_cast<int64_t>(count)),
                      .routes = routes,
                      .weights = a.moe.expert_weights,
                      .order = std::span(order_).first(routes_),
                      .top_k = spec_.num_experts_per_token,
                      .out = a.moe.mixed});
}

Status RoutedExperts::Finish(Activations& a, CancelToken cancel) {
  for (size_t done = 0; done < distinct_.size(); ++done) {
    Result<ExpertCache::Ready> ready = cache_.Next(cancel);
    if (!ready) {
      cache_.Abandon();
      return Failure(std::move(ready.error()));
    }
    RunExpert(a, ready->pin.weights(), static_cast<size_t>(ready->position));
  }
  if (AddsAtOnce()) return {};
  backend_.CombineExperts({.partial = a.moe.partial,
                           .weights = a.moe.expert_weights,
                           .order = std::span(order_).first(routes_),
                           .top_k = spec_.num_experts_per_token,
                           .out = a.moe.mixed});
  return {};
}

}  // namespace deltafin
