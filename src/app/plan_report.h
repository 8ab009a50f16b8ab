// plan_report: what `deltafin plan` says: a text for people, one JSON object for programs, the comparison tables.
//
// Pure functions of the simulation's results. Every form says that it was simulated.
#pragma once

#include <string>
#include <vector>

#include "app/plan_request.h"
#include "simulate/planner.h"
#include "simulate/target_row.h"

namespace deltafin {

struct PlanReport {
  const PlanJob* job = nullptr;
  simulate::PlanAnswer answer;
  std::vector<simulate::Alternative> alternatives;
  bool reference = false;  // the machine of the published measurements: they are shown beside
};

std::string PlanText(const PlanReport& report);
std::string PlanJson(const PlanReport& report);
// "4 drives (13.6 + 7.1 + 7.1 + 5.4 GB/s), 128 GB"
std::string MachineLine(const simulate::Machine& machine);

std::string ComparisonText(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own);
std::string ComparisonJson(const std::vector<simulate::TargetRow>& published,
                           const std::vector<simulate::TargetRow>& own);

}  // namespace deltafin
