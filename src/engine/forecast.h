// PromptForecast: what reading a prompt will cost, said before it begins: bytes from the drives, and the time that the
// drives need for them by their measured rates.
//
// A bound for people, no promise: experts are counted as if every token chose its own, independently of the others
// (text that repeats itself needs fewer), and arithmetic, which may take longer than reading, is not in it. Pure
// functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deltafin {

struct ForecastFacts {
  int64_t moe_layers = 0, experts = 0, experts_per_token = 0;
  uint64_t record_bytes = 0;
  uint64_t absent = 0;              // of all experts, not on disk: they come over the network
  int64_t slots = 0, resident = 0;  // of the expert cache
  int64_t chunk = 0;                // most rows of a step
  uint64_t streamed_dense_bytes = 0;
  // Rates of the drives, bytes a second; 0: not measured.
  std::vector<double> expert_rates;  // experts lie on them in proportion to these
  double dense_rate = 0;
  bool dense_apart = false;  // the streamed weights' drive holds no experts
};

struct PromptForecast {
  int64_t tokens = 0, chunks = 0;
  uint64_t expert_bytes = 0, dense_bytes = 0;
  uint64_t network_bytes = 0;  // of the experts, that must be fetched first
  double seconds = 0;          // of reading; 0: not known, since a drive was not measured

  uint64_t bytes() const { return expert_bytes + dense_bytes; }
};

PromptForecast ForecastPrompt(const ForecastFacts& facts, int64_t tokens);

// "prompt of 512 tokens: up to 1.45 TB to read in one pass over the model, 52 s at the drives' measured speed, and what
// the arithmetic takes"
std::string Describe(const PromptForecast& forecast);

}  // namespace deltafin
