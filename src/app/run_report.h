// run_report.h: the figures of one request, as the "stats" event and as text for a person.
//
// The event counts everything the process read, loading included; the text tells of this request alone. Value type and
// pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "bench/timed_backend.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace deltafin {

// One kind of computing, in seconds: of the prompt up to the first new token, and after it.
struct OperationTime {
  std::string name;
  double prompt = 0, decoding = 0;
};
// From counts when the request began, at its first token, and at its end.
std::vector<OperationTime> OperationTimes(const BackendTimes& begin, const BackendTimes& first,
                                          const BackendTimes& end);

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
      {};                                      // ... when the request began; empty: as if nothing had been guessed
  std::vector<OperationTime> operations = {};  // of the request; empty: not measured
};

// Keys: spec of the command line, `run --json`.
Json StatsEvent(const RunReport& report);
// For a person, several lines.
std::string StatsText(const RunReport& report);

}  // namespace deltafin
