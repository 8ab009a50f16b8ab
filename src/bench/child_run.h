// child_run: one cold run of `deltafin run` in a process of its own, as a BenchRun.
//
// Reads the events of `run --json` (docs/FORMAT.md), and while the process runs the kernel's counters of the drives.
// The process keeps nothing (--no-state), goes on behind the end of an answer (--ignore-end), and times its operations.
// CreateChildRunner's result holds no state but the thinned samples of a run. Errors: kCancelled; of the process by its
// exit status (kInvalidArgument, kCorrupt, kUnavailable, kIo) with its last line; kInternal when its events make no
// sense.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/json.h"
#include "base/result.h"
#include "bench/bench_result.h"

namespace deltafin {

struct RunRequest {
  const BenchArm& arm;
  const BenchPrompt& prompt;
  int64_t new_tokens = 0;
  int round = 0;
  const std::vector<BenchDevice>& devices;
  CancelToken cancel;
};
using BenchRunner = std::function<Result<BenchRun>(const RunRequest&)>;

// `program`: path of deltafin. `common`: options of every arm, --model among them.
BenchRunner CreateChildRunner(std::string program, std::vector<std::string> common);
// "--draft" of "--draft=off" and of "--draft off".
std::vector<std::string> OptionNames(const std::vector<std::string>& arguments);
// What is common, in the form --name=value, but for what the arm gives itself; then the arm's.
std::vector<std::string> ArmArguments(const std::vector<std::string>& common, const BenchArm& arm);
// All of a run, from "run" on.
std::vector<std::string> ChildArguments(const std::vector<std::string>& common, const RunRequest& request);

// Turns events into a run: add lines as they come, then finish.
class RunEvents {
 public:
  explicit RunEvents(BenchRun& run) : run_(run) {}
  void Add(std::string_view line, double seconds);
  // kInternal: no last event, or what it says contradicts the others.
  Status Finish();

 private:
  Status AddEvent(std::string_view line, double seconds);
  void AddToken(const Json& event, double seconds);
  void AddStats(const Json& event);

  BenchRun& run_;
  Status status_;
  bool has_stats_ = false;
  std::string text_;
  double wait_prompt_ = 0, wait_decoding_ = 0, dense_prompt_ = 0, dense_decoding_ = 0;
};

}  // namespace deltafin
