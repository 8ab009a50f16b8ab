// doctor: looks at the machine, the drives and a model's files, and says what is wrong, why it matters and what mends
// it. Reads only: nothing is written, no network is used, no setting is changed.
//
// Without a model it looks at the machine alone. The checks are one table (AllChecks); each is independent and finds
// everything of its kind, not the first fault only. Files that mean no good become findings, never errors. Thread rule:
// one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "base/cancel.h"
#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host.h"

namespace deltafin {

struct DoctorOptions {
  std::string model = {};                  // folder; "": only the machine
  std::vector<std::string> experts = {};   // empty: those that pack noted
  std::string dense = {};                  // "": none
  std::string state_folder = {};           // "": nothing is kept
  std::optional<uint64_t> memory = {};     // as a run would be given it
  std::string self_test_model = {};        // folder with config, shards and expected answers; "": not found
  std::vector<std::string> versions = {};  // "highway 1.0.3": of what the program is made of
  bool quick = false;                      // nothing that reads weights: no checksums, no self-test
  const std::vector<BackendFactory>* backends = nullptr;  // never null
  CancelToken cancel = {};
  std::function<void(const std::string& group)> progress = {};  // before each check
};

struct Subject;

struct DoctorCheck {
  const char* group;
  enum class Kind : uint8_t {
    kFast,
    kOfWeights,     // fast; after a fault found here it is no use to try and start
    kReadsWeights,  // left out by `quick`
  };
  Kind kind;
  void (*run)(const Subject& subject, Findings& findings);
};
std::span<const DoctorCheck> AllChecks();

// kCancelled; everything else is a finding.
Result<std::vector<Finding>> RunDoctor(const DoctorOptions& options, const Host& host);

}  // namespace deltafin
