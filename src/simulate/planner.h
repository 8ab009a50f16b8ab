// planner: how fast this engine would be on a described machine: tokens a second, time to the first token, and what
// limits them.
//
// The memory is split as the engine does it (dense weights first, then expert slots), and a prompt and some tokens are
// simulated with a warm cache. Everything is simulated; nothing is measured here. Pure
// functions, deterministic by seed. Errors: kInvalidArgument; kOutOfMemory ("at least SIZE").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/expert_trace.h"
#include "simulate/runs.h"

namespace deltafin::simulate {

struct PlanRequest {
  ModelShape shape;
  Machine machine;
  Layout layout;
  CachePolicy policy = CachePolicy::kFrequency;
  std::optional<uint64_t> cache_bytes = {};  // of experts; default: what the rest leaves
  bool packed = true;                        // dense weights in 12 bits (pack --dense), else as released
  double draft_chance = 0;                   // that a drafted token is right; 0: no drafts
  int64_t most_drafts = 7;
  int64_t prompt_tokens = 512;
  int64_t context = 8192;
  std::optional<int64_t> chunk = {};  // most rows of a pass through a prompt; default: what memory allows
  uint64_t seed = 1;
  const ExpertTrace* trace = nullptr;  // null: routing with K3's published statistics
};

struct MemorySplit {
  uint64_t budget = 0, conversation = 0, activations = 0, reserve = 0, dense = 0, experts = 0;
  int64_t chunk = 0, slots = 0;
  size_t resident_units = 0;  // of dense weights (ModelShape::units_by_size)
  double resident_dense = 1;  // their share of the bytes
  bool packed = false;
};
Result<MemorySplit> SplitMemory(const PlanRequest& request);

struct PlanAnswer {
  double tokens_per_second = 0, seconds_first_token = 0;
  // What would bring the most tokens a second if there were twice as much of it: "drives", "memory size", "memory
  // bandwidth" or "arithmetic".
  std::string limited_by;
  MemorySplit memory;
  double drafts = 0;  // checked in a step, on average
  DecodeRun decode;
  Totals prompt;                // of its first passes, if it is long
  std::vector<LayerSpan> step;  // the last one
};
Result<PlanAnswer> Plan(const PlanRequest& request);

struct Alternative {
  std::string change;
  double tokens_per_second = 0, seconds_first_token = 0;
  double gain = 0;  // of tokens a second, 0.1: a tenth more
};
// What other machines and settings would bring; those that cannot work are left out.
std::vector<Alternative> Alternatives(const PlanRequest& request, const PlanAnswer& answer);
// With the first 1, 2, ... of the drives, in the order given. What limits them is left out.
std::vector<PlanAnswer> ByDrives(const PlanRequest& request);

}  // namespace deltafin::simulate
