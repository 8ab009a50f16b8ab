// plan_request: the options of `deltafin plan`, and the request to the planner that they become.
//
// What the user says of a machine, or what is measured of this one (plan_machine.h). Nothing is simulated here. Errors:
// kInvalidArgument naming the option; those of reading a model's config.json or a trace.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulate/planner.h"

namespace deltafin {

struct PlanOptions {
  bool this_machine = false, reference = false, calibrate = false, json = false;
  std::string drives, ram, memory_bandwidth, arithmetic, latency;
  std::vector<std::string> hubs, what_if;
  std::string model, trace, layout = "striped", cache, cache_policy = "frequency", dense = "packed", draft = "off";
  std::optional<int64_t> prompt_tokens, context, chunk;
  uint64_t seed = 1;
  std::string state_dir, plot;
};

// A request, and what was taken for granted in it, line by line. Owns the trace.
struct PlanJob {
  simulate::PlanRequest request;
  std::optional<simulate::Machine> base;  // the machine before --what-if
  std::vector<std::string> assumptions;
  std::unique_ptr<ExpertTrace> trace;
};

Result<PlanJob> MakePlanJob(const PlanOptions& options);
// The shape of a folder's config.json; of Kimi K3 for "".
Result<ModelSpec> PlannedModel(const std::string& folder);

}  // namespace deltafin
