// context_bench: what decoding costs behind conversations of several lengths, measured in turns.
//
// One prompt of made-up ids is read up to the longest length, and the sequence forked at each length on the way; a fork
// shares latents with it, so all of them take little more memory than the longest. A round measures reading memory and
// decodes new_tokens from each fork, every other round in the opposite order; one round before them is not counted. A
// figure is the median of the rounds, `over_first` the median of the rounds' ratios: the time of a token less that of
// reading its latents once, over the time of a token at the first length in the same round. Thread rule: engine thread.
// Errors: those of Generate; kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/machine_limits.h"
#include "bench/timed_backend.h"
#include "engine/engine.h"

namespace deltafin {

struct ContextBenchOptions {
  std::vector<int64_t> lengths;  // of the conversations, ascending, the first at least 1
  int64_t new_tokens = 200;      // decoded one by one
  int rounds = 5;
  std::function<void(const std::string& what)> progress = {};
  CancelToken cancel = {};
};

struct ContextBenchRow {
  int64_t length = 0;
  double seconds_per_token = 0;
  double least = 0, most = 0;    // of the rounds
  double attention_seconds = 0;  // of that, attention over the latents
  double latent_bytes = 0;       // that a token looks back at, in the middle of decoding
  double latent_seconds = 0;     // what reading them once takes at the measured rate
  double over_first = 0;         // 1 for the first length
};

struct ContextBenchReport {
  std::string engine;  // Engine::Describe()
  int64_t new_tokens = 0;
  int rounds = 0;
  double memory_ceiling = 0;  // bytes a second
  std::vector<ContextBenchRow> rows;
};

// kInvalidArgument, naming what is wrong.
Status CheckContextBench(const ContextBenchOptions& options);

// `times` are those of the engine's backend (MakeTimedBackend). The engine's plan has a sequence for each length and one
// more.
Result<ContextBenchReport> BenchContext(Engine& engine, EngineMonitor& monitor, MachineLimits& limits,
                                        const BackendTimes& times, const ContextBenchOptions& options);

}  // namespace deltafin
