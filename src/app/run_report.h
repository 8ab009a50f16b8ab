// run_report.h: the figures of one request, as the "stats" event and as text for a person.
//
// Collects, computes nothing that the engine did not count. Counters are those of the engine since it was made, so in a chat
// they cover all answers so far. Value type and pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace deltafin {

struct RunReport {
  GenerationResult result;
  EngineCounters counters;
  double seconds_load = 0;
  std::string engine;  // Engine::Describe()
  std::string model_folder;
  bool sampled = false;
  uint64_t seed = 0;  // when sampled
};

// Keys: spec of the command line, `run --json`.
Json StatsEvent(const RunReport& report);
// For a person, several lines.
std::string StatsText(const RunReport& report);

}  // namespace deltafin
