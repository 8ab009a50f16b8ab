// run_protocol: the order and the rules by which cold runs become a result that may be published.
//
// Arms take turns, one process at a time, in balanced order (ArmOrder). Before the first round every arm answers the
// shortest case as often as `warm_ups` says, uncounted, so that the first arm does not pay for the program's own pages.
// Before every run `make_cold` is called. Greedy answers of one prompt must be the same ids in every run of every arm,
// a shorter answer being the beginning of a longer one; an arm marked inexact must agree with itself only; and all must
// agree with what was expected. The first id that differs voids the result: nothing of it counts, and no run is made
// after it. Thread rule: one thread. Errors: kInvalidArgument (the plan), those of the runner; the result is then
// partial and says why.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "bench/bench_result.h"
#include "bench/child_run.h"

namespace deltafin {

struct ProtocolOptions {
  std::vector<BenchArm> arms;
  std::vector<BenchPrompt> prompts;
  int rounds = 0, warm_ups = 0;
  std::map<std::string, std::string> expected;  // IdsSha256 by CaseName; of exact arms
  BenchRunner runner;
  std::function<Status()> make_cold;
  // The devices are looked up once more after the first run, when the engine has said which folders it reads.
  std::function<std::vector<BenchDevice>(const std::vector<OwnDrive>&)> find_devices;
  std::function<void(const BenchResult&)> after_run;  // what there is so far
  std::function<void(const std::string&)> progress;
  CancelToken cancel;
};

// Indices of arms in the order of their runs, for round 0, 1, ...: rotated by one from round to round, and backwards in
// every second cycle. Two arms: AB BA BA AB. Over a multiple of `arms` rounds every arm is at every place equally
// often.
std::vector<size_t> ArmOrder(size_t arms, int round);

Status CheckProtocol(const ProtocolOptions& options);
// Fills in runs, devices, state and reason. An error is one that ended it early.
Status RunProtocol(const ProtocolOptions& options, BenchResult* result);

// Whether the ids of runs are those that they must be.
class TextCheck {
 public:
  TextCheck(const std::vector<BenchArm>& arms, std::map<std::string, std::string> expected);
  // "" when they are, else what differs from what.
  std::string Add(const BenchRun& run);

 private:
  struct Known {
    std::vector<TokenId> ids;  // the longest answer so far
    std::string whose;
  };
  std::map<std::string, bool> inexact_;  // by arm
  std::map<std::string, std::string> expected_;
  std::map<std::pair<std::string, std::string>, Known> known_;        // by arm ("": all exact ones) and prompt
  std::map<std::pair<std::string, std::string>, std::string> texts_;  // SHA-256, by arm and case
};

}  // namespace deltafin
