// bench_arms: the arms of bench run, from `--arm NAME:OPTIONS` to options of `run` that were checked before anything
// runs.
//
// An arm takes the common options of run but for those that the protocol sets itself (the model, the state folder, what
// is printed). What an arm gives replaces what was given for all. Pure functions. Errors: kInvalidArgument naming the
// arm.
#pragma once

#include <string>
#include <vector>

#include "app/common_options.h"
#include "bench/bench_result.h"

namespace deltafin {

struct BenchArms {
  std::vector<std::string> common;      // arguments of every run, --model among them
  std::vector<BenchArm> arms;           // at least one
  std::vector<CommonOptions> settings;  // of each arm, with what is common
};

// `given`: the command line of bench run, with CommonOptions added to it. `texts`: values of --arm; none: one arm
// without options. `inexact`: names of arms.
Result<BenchArms> ParseBenchArms(const CLI::App& given, const std::vector<std::string>& texts,
                                 const std::vector<std::string>& inexact);

// Words between blanks; 'several words' and "several words" are one.
Result<std::vector<std::string>> SplitWords(const std::string& text);

}  // namespace deltafin
