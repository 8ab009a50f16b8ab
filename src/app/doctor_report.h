// doctor_report.h: the findings of doctor, as JSON and as text for people.
//
// Pure functions. In the text every group has one line, and below it what is not in order; `verbose` shows all.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "doctor/finding.h"

namespace deltafin {

struct FindingCounts {
  int ok = 0, notes = 0, warnings = 0, faults = 0;
};
FindingCounts CountFindings(std::span<const Finding> findings);

Json DoctorJson(std::span<const Finding> findings);

struct DoctorTextStyle {
  bool verbose = false;
  bool colour = false;
  int width = 0;  // 0: lines are not wrapped
};
std::string DoctorText(std::span<const Finding> findings, const DoctorTextStyle& style);

}  // namespace deltafin
