// decode_bench: how fast an engine reads a prompt and decodes, beside what this processor could do at best.
//
// Every round measures reading memory and multiplying first, then feeds a prompt of made-up ids (other ids in every
// round, the same in every run) and decodes greedily. Rounds before them are not counted: they warm caches, until one
// finds all its experts in memory, or the fourth. A figure is the median of the rounds, a ratio the median of the
// rounds' ratios. Decoding is held against reading: weight bytes that a token touches over its time. The prompt is held
// against multiplying: multiply-adds of the matrices over its time. Uses no statistics of earlier runs. Thread rule:
// engine thread. Errors: those of Generate; kCancelled.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/machine_limits.h"
#include "bench/timed_backend.h"
#include "engine/engine.h"

namespace deltafin {

struct DecodeBenchOptions {
  int64_t prompt_tokens = 32;
  int64_t new_tokens = 32;  // decoded after the prompt, one by one
  int rounds = 5;
  std::function<void(const std::string& what)> progress = {};
  CancelToken cancel = {};
};

struct DecodeBenchReport {
  std::string engine;  // Engine::Describe()
  int64_t prompt_tokens = 0, new_tokens = 0;
  int rounds = 0;
  // Decoding.
  double seconds_per_token = 0;        // of a round's mean
  double bytes_touched_per_token = 0;  // dense weights and routed experts
  // Of the latents that a token looks back at, in the middle of decoding: what reading each of them once is.
  double latent_bytes_per_token = 0;
  double bytes_per_second = 0, memory_ceiling = 0, decode_ratio = 0;
  double device_bytes_per_token = 0;       // from the drives
  double seconds_wait_per_token = 0;       // for experts and streamed dense weights
  double seconds_outside_per_layer = 0;    // neither in an operation of the backend nor waiting, a layer of a token
  double processor_seconds_per_token = 0;  // of all threads: while they wait for drives, none
  std::array<double, kTimedOperations> operation_seconds = {};  // a token, by TimedOperation
  // The prompt.
  double seconds_prompt = 0;
  double macs_per_token = 0;
  double flops_per_second = 0, multiply_peak = 0, prompt_ratio = 0;
  double device_bytes_prompt = 0;
  // Of a parallel loop of as many threads.
  double seconds_fork_join = 0, seconds_fork_join_asleep = 0;
};

// `times` are those of the engine's backend (MakeTimedBackend).
Result<DecodeBenchReport> BenchDecode(Engine& engine, EngineMonitor& monitor, MachineLimits& limits,
                                      const BackendTimes& times, const DecodeBenchOptions& options);

}  // namespace deltafin
