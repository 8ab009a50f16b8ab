#include "simulate/routing.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "cache/trace_replay.h"
#include "synth/random.h"

namespace deltafin::simulate {
namespace {

// Tokens that a layer looks back at, in mean distances.
constexpr double kLongestMemory = 8;
// Choices that fail before the rest is taken in order of popularity: a step may want nearly all experts.
constexpr int64_t kTriesPerExpert = 6;

class MadeRouting final : public Routing {
 public:
  MadeRouting(const ModelShape& shape, const RoutingStatistics& s, uint64_t seed)
      : s_(s), experts_(shape.experts), per_token_(shape.experts_per_token), random_(seed) {
    double sum = 0;
    for (int64_t rank = 0; rank < experts_; ++rank)
      cumulative_.push_back(sum += std::exp(-s.spread * static_cast<double>(rank) / static_cast<double>(experts_)));
    for (double& value : cumulative_) value /= sum;
    layers_.resize(shape.layers.size());
    for (size_t l = 0; l < layers_.size(); ++l)
      if (shape.layers[l].has_experts) StartLayer(layers_[l]);
  }

  void Next(int64_t rows, double factor, StepExperts* out) override {
    out->resize(layers_.size());
    const double share = std::pow(static_cast<double>(rows), s_.growth) * factor;
    const auto wanted = std::min(experts_, static_cast<int64_t>(std::llround(static_cast<double>(per_token_) * share)));
    for (size_t l = 0; l < layers_.size(); ++l) {
      std::vector<int32_t>& experts = (*out)[l];
      experts.clear();
      if (layers_[l].by_rank.empty()) continue;
      Choose(layers_[l], rows, static_cast<size_t>(wanted), experts);
    }
  }

  double Rank(int32_t layer, int32_t expert) const override {
    return layers_[static_cast<size_t>(layer)].rank[static_cast<size_t>(expert)];
  }

 private:
  struct LayerState {
    std::vector<int32_t> by_rank;                // [experts], most popular first
    std::vector<double> rank;                    // [experts], 0 .. 1
    std::vector<uint8_t> taken;                  // [experts] in the step that is being made
    std::deque<std::vector<int32_t>> last_rows;  // of the last tokens, newest first
  };

  double Uniform() { return static_cast<double>(random_.Next() >> 11) * 0x1p-53; }
  size_t Below(size_t count) {
    return std::min(count - 1, static_cast<size_t>(Uniform() * static_cast<double>(count)));
  }

  void StartLayer(LayerState& layer) {
    const auto count = static_cast<size_t>(experts_);
    layer.by_rank.resize(count);
    std::iota(layer.by_rank.begin(), layer.by_rank.end(), 0);
    for (size_t i = count; i > 1; --i) std::swap(layer.by_rank[i - 1], layer.by_rank[Below(i)]);
    layer.rank.resize(count);
    for (size_t i = 0; i < count; ++i)
      layer.rank[static_cast<size_t>(layer.by_rank[i])] = static_cast<double>(i) / static_cast<double>(count);
    layer.taken.resize(count);
  }

  // -1: nothing so far back.
  int32_t Recent(const LayerState& layer) {
    const double distance = -std::log(1 - Uniform()) * s_.recent_tokens;
    const size_t memory = layer.last_rows.size();
    if (!(distance < static_cast<double>(memory))) return -1;
    const std::vector<int32_t>& row = layer.last_rows[static_cast<size_t>(distance)];
    return row[Below(row.size())];
  }

  int32_t Popular(const LayerState& layer) {
    const auto at = std::lower_bound(cumulative_.begin(), cumulative_.end() - 1, Uniform());
    return layer.by_rank[static_cast<size_t>(at - cumulative_.begin())];
  }

  void Choose(LayerState& layer, int64_t rows, size_t wanted, std::vector<int32_t>& out) {
    const auto take = [&](int32_t expert) {
      uint8_t& taken = layer.taken[static_cast<size_t>(expert)];
      if (taken != 0 || out.size() >= wanted) return;
      taken = 1;
      out.push_back(expert);
    };
    const double keep = 1 - std::pow(1 - s_.keep, static_cast<double>(rows));
    if (!layer.last_rows.empty())
      for (const int32_t expert : layer.last_rows.front())
        if (Uniform() < keep) take(expert);
    const int64_t tries = kTriesPerExpert * static_cast<int64_t>(wanted);
    for (int64_t i = 0; i < tries && out.size() < wanted; ++i) {
      int32_t expert = -1;
      if (Uniform() < s_.recent) expert = Recent(layer);
      take(expert < 0 ? Popular(layer) : expert);
    }
    for (const int32_t expert : layer.by_rank) take(expert);
    Remember(layer, out);
    for (const int32_t expert : out) layer.taken[static_cast<size_t>(expert)] = 0;
    std::sort(out.begin(), out.end());
  }

  // The step's last row: any of its experts.
  void Remember(LayerState& layer, const std::vector<int32_t>& step) {
    std::vector<int32_t> row = step;
    const size_t count = std::min(row.size(), static_cast<size_t>(per_token_));
    for (size_t i = 0; i < count; ++i) std::swap(row[i], row[i + Below(row.size() - i)]);
    row.resize(count);
    layer.last_rows.push_front(std::move(row));
    if (static_cast<double>(layer.last_rows.size()) > kLongestMemory * s_.recent_tokens + 1) layer.last_rows.pop_back();
  }

  const RoutingStatistics s_;
  const int64_t experts_, per_token_;
  Random random_;
  std::vector<double> cumulative_;  // [experts] by rank
  std::vector<LayerState> layers_;
};

class ReplayedRouting final : public Routing {
 public:
  explicit ReplayedRouting(ExpertTrace trace) : trace_(std::move(trace)) {
    const ExpertUsage usage = CountUsage(trace_);
    const auto experts = static_cast<size_t>(trace_.shape().experts);
    ranks_.resize(static_cast<size_t>(trace_.shape().layers) * experts);
    for (const int32_t layer : LayersOf(trace_)) {
      const int32_t only[] = {layer};
      std::vector<ExpertKey> keys = usage.MostUsed(only, trace_.shape().experts);
      for (double& rank : std::span(ranks_).subspan(static_cast<size_t>(layer) * experts, experts)) rank = 1;
      for (size_t i = 0; i < keys.size(); ++i)
        ranks_[static_cast<size_t>(layer) * experts + static_cast<size_t>(keys[i].expert)] =
            static_cast<double>(i) / static_cast<double>(experts);
    }
  }

  // As many steps as it takes; prompts of the trace count as well. A factor has no meaning here: nothing is invented.
  void Next(int64_t rows, double, StepExperts* out) override {
    out->resize(static_cast<size_t>(trace_.shape().layers));
    for (auto& experts : *out) experts.clear();
    int64_t left = rows;
    // Every step has at least one row; a whole trace joined wants all that it ever wanted.
    for (size_t joined = 0; left > 0 && joined < trace_.steps().size(); ++joined) {
      const ExpertTrace::Step& step = trace_.steps()[at_];
      for (size_t b = step.begin; b < step.end; ++b) {
        const ExpertTrace::Batch& batch = trace_.batches()[b];
        const auto experts = trace_.ExpertsOf(batch);
        auto& all = (*out)[static_cast<size_t>(batch.layer)];
        all.insert(all.end(), experts.begin(), experts.end());
      }
      left -= step.rows;
      at_ = (at_ + 1) % trace_.steps().size();
    }
    for (auto& experts : *out) {
      std::sort(experts.begin(), experts.end());
      experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    }
  }

  double Rank(int32_t layer, int32_t expert) const override {
    return ranks_[static_cast<size_t>(layer) * static_cast<size_t>(trace_.shape().experts) +
                  static_cast<size_t>(expert)];
  }

 private:
  const ExpertTrace trace_;
  std::vector<double> ranks_;  // [layers, experts]
  size_t at_ = 0;              // the next step
};

}  // namespace

RoutingStatistics K3Statistics() {
  // Published: use falls by exp(-rank / 26,000) over 82,432 experts, and n rows want n^0.71 times as many. The others
  // are set by what a cache of 36 and of 109 GB was measured to hit (target C9).
  return {.spread = 82432.0 / 26000, .keep = 0.26, .recent = 0.35, .recent_tokens = 10, .growth = 0.71};
}

std::unique_ptr<Routing> MakeRouting(const ModelShape& shape, const RoutingStatistics& statistics, uint64_t seed) {
  return std::make_unique<MadeRouting>(shape, statistics, seed);
}

Result<std::unique_ptr<Routing>> ReplayRouting(const ModelShape& shape, ExpertTrace trace) {
  const ExpertTraceShape& got = trace.shape();
  if (got.layers != static_cast<int64_t>(shape.layers.size()) || got.experts != shape.experts ||
      got.experts_per_token != shape.experts_per_token)
    return Fail(ErrorCode::kInvalidArgument, "trace: expected ", shape.layers.size(), " layers of ", shape.experts,
                " experts, ", shape.experts_per_token, " a token, as the model has, got ", got.layers, " of ",
                got.experts, ", ", got.experts_per_token, ": give the model it was recorded with (--model)");
  if (trace.steps().empty()) return Fail(ErrorCode::kInvalidArgument, "trace: it holds no finished step");
  return std::make_unique<ReplayedRouting>(std::move(trace));
}

ExpertTrace MakeTrace(const ModelShape& shape, Routing& routing, int64_t tokens) {
  ExpertTrace trace({.layers = static_cast<int32_t>(shape.layers.size()),
                     .experts = static_cast<int32_t>(shape.experts),
                     .experts_per_token = static_cast<int32_t>(shape.experts_per_token),
                     .record_bytes = static_cast<uint64_t>(shape.record_bytes)});
  StepExperts step;
  for (int64_t t = 0; t < tokens; ++t) {
    routing.Next(1, 1, &step);
    for (size_t l = 0; l < step.size(); ++l)
      if (!step[l].empty()) trace.AddBatch(static_cast<int32_t>(l), step[l]);
    trace.EndStep(1);
  }
  return trace;
}

}  // namespace deltafin::simulate
