// routing: which experts each step of a simulation wants: from a recorded trace, or made up with published statistics.
//
// The made-up kind: every layer's experts have a popularity that falls by exp(-spread * rank / experts); a token keeps
// each of the last token's experts with one probability, takes others from the last few tokens' with another, and the
// rest by popularity. A step of n rows wants per_token * n^growth distinct experts. Deterministic by seed. The recorded
// kind starts again at its end, and joins steps where more rows are asked for. Not thread-safe. Errors:
// kInvalidArgument (a trace of another shape, or without a step).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cache/expert_trace.h"
#include "simulate/model_shape.h"

namespace deltafin::simulate {

// By layer of the model; empty where a layer has no experts. Distinct, ascending.
using StepExperts = std::vector<std::vector<int32_t>>;

class Routing {
 public:
  virtual ~Routing() = default;
  // `factor`: so many times as many distinct experts as such a step would want (at most all).
  virtual void Next(int64_t rows, double factor, StepExperts* out) = 0;
  // 0 for the expert of its layer that is wanted most, near 1 for the one wanted least.
  virtual double Rank(int32_t layer, int32_t expert) const = 0;
};

struct RoutingStatistics {
  double spread = 0;         // of popularity
  double keep = 0;           // chance that the next token wants an expert again
  double recent = 0;         // of a choice that was not kept: that it is one of the last tokens'
  double recent_tokens = 0;  // how far back those lie, on average
  double growth = 0;         // exponent of distinct experts by rows
};
// Published measurements of Kimi K3, and what was set by them (docs/PLANNING.md).
RoutingStatistics K3Statistics();

std::unique_ptr<Routing> MakeRouting(const ModelShape& shape, const RoutingStatistics& statistics, uint64_t seed);
Result<std::unique_ptr<Routing>> ReplayRouting(const ModelShape& shape, ExpertTrace trace);

// `tokens` steps of one row, as a trace.
ExpertTrace MakeTrace(const ModelShape& shape, Routing& routing, int64_t tokens);

}  // namespace deltafin::simulate
