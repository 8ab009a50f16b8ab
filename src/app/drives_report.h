// drives_report: what `deltafin drives` says: a table for people, one JSON object for programs (docs/TUNING.md).
//
// Pure functions of the measurements.
#pragma once

#include <string>
#include <vector>

#include "io/drive_probe.h"

namespace deltafin {

std::string DrivesJson(const ProbeReport& report, const std::vector<std::string>& notes);
std::string DrivesTable(const ProbeReport& report);

}  // namespace deltafin
