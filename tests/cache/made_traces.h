// made_traces.h: traces of made-up models, for replay: skewed use that depends on the token before (as in the
// checkpoints that synth makes), uniform use, prompts before and between.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/expert_trace.h"

namespace deltafin::test {

struct MadeTrace {
  std::string name;
  ExpertTraceShape shape = {.layers = 4, .experts = 96, .experts_per_token = 16, .record_bytes = 1000};
  int32_t first_layer = 1;         // layers before it have no routed experts
  double skew = 1;                 // use of rank r is proportional to 1 / (r + experts / 32)^skew; 0: uniform
  double repeat = 0.3;             // chance of an expert of the last token to be wanted again for that reason
  std::vector<int64_t> rows = {};  // of the steps, in order
  uint32_t seed = 1;
  double most_ratio = 1.1;  // reads of the policy over those of the best static set
};

inline std::vector<int64_t> Steps(std::vector<std::pair<int64_t, int>> runs) {
  std::vector<int64_t> rows;
  for (const auto& [size, count] : runs) rows.insert(rows.end(), static_cast<size_t>(count), size);
  return rows;
}

// Draws what one token after the other wants.
class MadeRouter {
 public:
  explicit MadeRouter(const MadeTrace& made) : made_(made), random_(made.seed), last_(Layers()), chances_(Layers()) {
    const auto experts = static_cast<size_t>(made.shape.experts);
    for (std::vector<double>& chances : chances_) {
      std::vector<size_t> rank(experts);
      std::iota(rank.begin(), rank.end(), size_t{0});
      std::shuffle(rank.begin(), rank.end(), random_);
      for (size_t e = 0; e < experts; ++e)
        chances.push_back(std::pow(static_cast<double>(rank[e]) + static_cast<double>(experts) / 32, -made.skew));
    }
  }

  const std::set<int32_t>& Next(int32_t layer) {
    const auto l = static_cast<size_t>(layer);
    std::set<int32_t> wanted;
    for (const int32_t expert : last_[l])
      if (Uniform() < made_.repeat) wanted.insert(expert);
    std::discrete_distribution<int32_t> draw(chances_[l].begin(), chances_[l].end());
    while (wanted.size() < static_cast<size_t>(made_.shape.experts_per_token)) wanted.insert(draw(random_));
    return last_[l] = std::move(wanted);
  }

 private:
  size_t Layers() const { return static_cast<size_t>(made_.shape.layers); }
  double Uniform() { return static_cast<double>(random_()) / 4294967296.0; }

  const MadeTrace& made_;
  std::mt19937 random_;
  std::vector<std::set<int32_t>> last_;
  std::vector<std::vector<double>> chances_;
};

inline ExpertTrace Make(const MadeTrace& made) {
  ExpertTrace trace(made.shape);
  MadeRouter router(made);
  for (const int64_t rows : made.rows) {
    std::vector<std::map<int32_t, int32_t>> wanted(static_cast<size_t>(made.shape.layers));
    for (int64_t row = 0; row < rows; ++row)
      for (int32_t layer = made.first_layer; layer < made.shape.layers; ++layer)
        for (const int32_t expert : router.Next(layer)) ++wanted[static_cast<size_t>(layer)][expert];
    for (int32_t layer = made.first_layer; layer < made.shape.layers; ++layer) {
      std::vector<int32_t> experts, rows_of;
      for (const auto& [expert, count] : wanted[static_cast<size_t>(layer)]) {
        experts.push_back(expert);
        rows_of.push_back(count);
      }
      trace.AddBatch(layer, experts, rows_of);
    }
    trace.EndStep(rows);
  }
  return trace;
}

// What the policy is held against.
inline std::vector<MadeTrace> MadeTraces() {
  constexpr ExpertTraceShape kWide{.layers = 9, .experts = 448, .experts_per_token = 8, .record_bytes = 1000};
  return {
      {.name = "Skewed", .rows = Steps({{1, 400}}), .seed = 2},
      {.name = "SkewedIndependent", .repeat = 0, .rows = Steps({{1, 400}}), .seed = 3, .most_ratio = 1.18},
      {.name = "Uniform", .skew = 0, .repeat = 0, .rows = Steps({{1, 400}}), .seed = 4, .most_ratio = 1.18},
      {.name = "PromptThenDecode", .rows = Steps({{256, 4}, {1, 400}}), .seed = 5},
      {.name = "PromptsBetween", .rows = Steps({{1, 200}, {256, 8}, {1, 200}, {64, 3}, {1, 200}}), .seed = 6, .most_ratio = 1.11},
      {.name = "Wide",
       .shape = kWide,
       .first_layer = 0,
       .skew = 0.65,
       .rows = Steps({{64, 1}, {1, 400}}),
       .seed = 7,
       .most_ratio = 1.12},
  };
}

}  // namespace deltafin::test
