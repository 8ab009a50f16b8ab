// plan_report: what `deltafin plan` says: a text for people, one JSON object for programs, the comparison tables.
//
// Pure functions of the simulation's results. Every form says that it was simulated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/plan_request.h"
#include "simulate/planner.h"
#include "simulate/target_row.h"

namespace deltafin {

struct PlanReport {
  const PlanJob* job = nullptr;
  simulate::PlanAnswer answer;
  std::optional<simulate::PlanAnswer> base_answer;  // of PlanJob::base, where it can run
  std::vector<simulate::Alternative> alternatives;
  bool reference = false;  // the machine of the published measurements: they are shown beside
};

// For a terminal of so many columns.
std::string PlanText(const PlanReport& report, size_t columns);
std::string PlanJson(const PlanReport& report);
// "4 drives (13.6 + 7.1 + 7.1 + 5.4 GB/s), 128 GB"; hubs with the drives behind them
std::string MachineLine(const simulate::Machine& machine);
// What --what-if brings.
std::string ChangeLine(const PlanReport& report);

std::string ComparisonText(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own);
std::string ComparisonJson(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own);

}  // namespace deltafin
