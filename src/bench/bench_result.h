// bench_result.h: what `bench run` was asked to do and what it found: the types that protocol, reports and comparison
// share.
//
// One BenchRun is one process that answered one prompt once. Figures of several are in run_figures.h. Value types;
// seconds, bytes, tokens a second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "bench/machine_description.h"

namespace deltafin {

// What differs between the sides of a comparison: options of `deltafin run`.
struct BenchArm {
  std::string name;
  std::vector<std::string> arguments;
  bool inexact = false;  // may give other tokens than the other arms; never other ones than before

  bool operator==(const BenchArm&) const = default;
};

struct BenchPrompt {
  std::string name;
  std::vector<TokenId> ids;
  std::string ids_sha256;        // see IdsSha256
  std::vector<int64_t> lengths;  // new tokens, one run for each; ascending
};

// A device that holds files of the model, as the kernel counts it.
struct BenchDevice {
  std::string name, model, file_system, mount_point;
  std::vector<std::string> folders;
  std::string counters;  // file with the kernel's counters; "": there is none
};

struct OwnDrive {  // as the engine counts it
  std::string name;
  uint64_t bytes = 0;
  double seconds_busy = 0;
};

struct DriveSample {
  double seconds = 0;           // since the process began
  std::vector<uint64_t> bytes;  // since then, of each BenchDevice
};

struct TimePart {
  std::string name;
  double prompt = 0, decoding = 0;  // seconds up to the first new token, and after it
};

struct BenchRun {
  std::string arm, prompt;
  int64_t new_tokens = 0;
  int round = 0;  // from 1; 0: a warm-up, which never counts
  std::vector<TokenId> ids;
  std::string ids_sha256, text_sha256;  // the second: "" where only ids are spoken
  int64_t prompt_tokens = 0;
  double seconds_process = 0, seconds_load = 0, seconds_first_token = 0, seconds_total = 0;
  double first_token_at = 0;  // since the process began, as seen from outside
  std::vector<TimePart> time;
  uint64_t own_bytes = 0, payload_bytes = 0;
  std::vector<OwnDrive> own_drives;
  std::vector<uint64_t> kernel_bytes;  // of each BenchDevice; empty: not known
  std::vector<DriveSample> samples;
  std::optional<double> other_processor_seconds, stolen_seconds;  // used by others; taken by the host
  uint64_t peak_rss_bytes = 0, drafted = 0, drafted_right = 0;
  std::string engine;

  // New tokens after the first over the time after the first; 0 with fewer than two.
  double steady() const;
  // All new tokens over the whole time of the request, prompt included, loading not.
  double inclusive() const;
  // The same with the time to load the weights before it.
  double inclusive_with_load() const;
};

enum class BenchState : uint8_t { kComplete, kPartial, kVoided };

struct BenchResult {
  BenchState state = BenchState::kPartial;
  std::string reason;   // why it is not complete
  std::string started;  // UTC, ISO 8601
  double seconds = 0;
  std::string command;       // as a user would repeat it
  std::string model;         // folder
  std::string model_sha256;  // of its config.json
  std::string cold;          // what was done so that nothing was warm
  std::string answers;       // what the answers were compared with
  int rounds = 0, warm_ups = 0;
  MachineDescription machine;
  std::optional<double> load_average_start, load_average_end;
  std::vector<BenchArm> arms;
  std::vector<BenchPrompt> prompts;
  std::vector<BenchDevice> devices;
  std::vector<BenchRun> runs;
  std::vector<std::string> warnings;
};

// SHA-256 of the ids in decimal with commas between them: printf '1,2,3' | sha256sum.
std::string IdsSha256(const std::vector<TokenId>& ids);
// "essay-17": a prompt and a number of new tokens.
std::string CaseName(const std::string& prompt, int64_t new_tokens);
const char* ToString(BenchState state);

}  // namespace deltafin
