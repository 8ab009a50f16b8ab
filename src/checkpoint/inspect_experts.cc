#include "checkpoint/inspect_experts.h"

#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"

namespace deltafin {

ExpertSetReport InspectExpertSet(const std::vector<std::string>& folders, const ModelSpec& spec) {
  ExpertSetReport report;
  report.folders = folders;
  report.experts_expected = spec.num_moe_layers * spec.num_experts;
  const Result<ExpertSet> set = ExpertSet::Open(folders, spec, ExpertSet::Need::kAnyRecords);
  if (!set) {
    report.problem = set.error().message();
    return report;
  }
  report.set_id = ToHex(set->manifest().set_id);
  report.generation = set->manifest().generation;
  report.experts = set->manifest().records;
  report.warnings = set->warnings();
  report.reachable = true;
  report.complete = report.experts == report.experts_expected;
  if (!report.complete)
    report.problem = Cat("expert set ", report.set_id, ": expected ", report.experts_expected, " experts, got ",
                         report.experts, ": run `deltafin pack` again when all shards are there");
  return report;
}

}  // namespace deltafin
