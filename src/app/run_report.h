// run_report.h: the figures of one request, as the "stats" event and as text for a person.
//
// The event counts everything the process read, loading included; the text tells of this request alone. Value type and
// pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace deltafin {

struct RunReport {
  GenerationResult result;
  EngineCounters total;  // since the engine was made, loading included
  double seconds_load = 0;
  std::string engine;                      // Engine::Describe()
  std::vector<DriveReport> drives;         // since the engine was made
  std::vector<DriveReport> drives_before;  // ... when the request began; empty: as if nothing had been read
  bool sampled = false;
  uint64_t seed = 0;                           // when sampled
  std::vector<LayerLookahead> lookahead = {};  // since the engine was made
  std::vector<LayerLookahead> lookahead_before =
      {};  // ... when the request began; empty: as if nothing had been guessed
};

// Keys: spec of the command line, `run --json`.
Json StatsEvent(const RunReport& report);
// For a person, several lines.
std::string StatsText(const RunReport& report);

}  // namespace deltafin
