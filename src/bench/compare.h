// compare: two results of bench run beside each other: medians of the same prompt and length, and their ratio.
//
// Cases are matched by prompt and length, and only where the prompts have the same ids. Sides of one run and the same
// rounds are compared round by round (paired); sides of two runs are not, since nothing ties round 1 of one to round 1
// of the other. Intervals and sign test: bench/spread.h. Pure functions. Errors: kInvalidArgument when the two do not
// compare: voided, another model, no case in common, an arm that is not there or not named where there are several.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/result_json.h"

namespace deltafin {

struct ComparedRate {
  Spread a, b;
  RatioInterval ratio;  // b over a
};

struct ComparedCase {
  std::string prompt;
  int64_t new_tokens = 0;
  ComparedRate steady, inclusive, first_token;  // steady: counts of 0 where there is no such rate
  bool same_ids = true;

  std::string name() const { return CaseName(prompt, new_tokens); }
};

struct Comparison {
  std::string name_a, name_b, arm_a, arm_b;
  bool paired = false;
  std::vector<ComparedCase> cases;
  // Of the cases' inclusive rates: geometric mean of the ratios, how many are above 1, and how often coins do that.
  double mean_ratio = 0, sign_probability = 1;
  int faster = 0;
  std::vector<std::string> notes;  // what differs that should not, or makes it doubtful
};

// `arm_a`, `arm_b`: "" for the only arm.
Result<Comparison> CompareResults(const BenchFile& a, const BenchFile& b, const std::string& arm_a,
                                  const std::string& arm_b);
Json ComparisonToJson(const Comparison& comparison);
std::string ComparisonMarkdown(const Comparison& comparison);

}  // namespace deltafin
