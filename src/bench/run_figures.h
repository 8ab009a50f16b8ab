// run_figures: the figures of several runs of one arm, prompt and length, and what makes them doubtful.
//
// Only counted runs of a result that is not voided give figures. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/bench_result.h"
#include "bench/spread.h"

namespace deltafin {

// One kind of figure, by round.
struct Series {
  std::vector<double> values;
  Spread spread() const { return SpreadOf(values); }
};

struct CaseFigures {
  std::string arm, prompt;
  int64_t new_tokens = 0, prompt_tokens = 0;
  std::vector<int> rounds;
  Series steady, inclusive, with_load, first_token;  // steady: empty with one new token
  std::string ids_sha256, text_sha256;
  // Medians.
  double seconds_load = 0;
  double own_bytes = 0, payload_bytes = 0;
  std::optional<double> kernel_bytes, kernel_over_own;
  std::vector<TimePart> time;
  uint64_t drafted = 0, drafted_right = 0;  // of all rounds
  uint64_t peak_rss_bytes = 0;              // the most

  std::string name() const { return CaseName(prompt, new_tokens); }
};

// In the order of arms, prompts and lengths.
std::vector<CaseFigures> FiguresOf(const BenchResult& result);
// The run whose rate lies in the middle; null when there is none.
const BenchRun* MiddleRun(const BenchResult& result, const CaseFigures& figures);
// Of machine and runs, one sentence each.
std::vector<std::string> WarningsOf(const BenchResult& result);

}  // namespace deltafin
