#include "doctor/finding.h"

#include <algorithm>

namespace deltafin {

std::string_view ToString(FindingState state) {
  switch (state) {
    case FindingState::kOk:
      return "ok";
    case FindingState::kNote:
      return "note";
    case FindingState::kWarning:
      return "warning";
    case FindingState::kFault:
      return "fault";
  }
  return "?";
}

bool Findings::has_faults() const {
  return std::any_of(list_.begin(), list_.end(), [](const Finding& f) { return f.state == FindingState::kFault; });
}

}  // namespace deltafin
