// Finding: one thing that doctor looked at, and what it means.
//
// `name` is stable ("memlock.low"), for scripts; the texts are for people. A finding that is in order has no `why` and
// remedy. `fix` can be typed as it stands, into a shell; what no command does is `advice`. Value types; Findings
// collects them in the order in which they were found. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltafin {

enum class FindingState : uint8_t {
  kOk,
  kNote,     // worth knowing, nothing to do
  kWarning,  // it runs, slower or with less than it could
  kFault,    // it does not run, or its answers cannot be trusted
};

// "ok", "note", "warning", "fault".
std::string_view ToString(FindingState state);

struct Finding {
  FindingState state = FindingState::kOk;
  std::string group;  // "drives"
  std::string name;   // "drive.unmounted"
  std::string found;
  std::string why;     // it matters
  std::string fix;     // the command that mends it, "" where there is none
  std::string advice;  // what to do where no command does it, or beside the command
};

struct Remedy {
  std::string command = {}, advice = {};
};
inline Remedy ByCommand(std::string command, std::string advice = {}) {
  return {std::move(command), std::move(advice)};
}
inline Remedy ByAdvice(std::string advice) { return {{}, std::move(advice)}; }

class Findings {
 public:
  explicit Findings(std::string group) : group_(std::move(group)) {}

  void Ok(std::string name, std::string found) { Add(FindingState::kOk, std::move(name), std::move(found), "", {}); }
  void Note(std::string name, std::string found, std::string why, Remedy remedy = {}) {
    Add(FindingState::kNote, std::move(name), std::move(found), std::move(why), std::move(remedy));
  }
  void Warning(std::string name, std::string found, std::string why, Remedy remedy) {
    Add(FindingState::kWarning, std::move(name), std::move(found), std::move(why), std::move(remedy));
  }
  void Fault(std::string name, std::string found, std::string why, Remedy remedy) {
    Add(FindingState::kFault, std::move(name), std::move(found), std::move(why), std::move(remedy));
  }
  const std::vector<Finding>& list() const { return list_; }
  bool has_faults() const;

 private:
  void Add(FindingState state, std::string name, std::string found, std::string why, Remedy remedy) {
    list_.push_back({state, group_, std::move(name), std::move(found), std::move(why), std::move(remedy.command),
                     std::move(remedy.advice)});
  }

  std::string group_;
  std::vector<Finding> list_;
};

}  // namespace deltafin
