// rebalance_plan: what changes when an expert set is spread over other drives: new pieces, and ranges given up.
//
// Records keep their slots, pieces that stay on their drive keep their file and their place in it; a piece that comes
// to a drive gets a file of its own. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/expert_set_manifest.h"
#include "pack/set_files.h"

namespace deltafin {

struct RebalancePlan {
  ExpertSetManifest before, after;
  std::vector<std::string> from, to;  // folders by drive of before and after; "" for a drive that is gone
};

// `drives` are those of `to`.
RebalancePlan PlanRebalance(const SetCandidate& set, const std::vector<std::string>& to,
                            const std::vector<ExpertSetDrive>& drives);
bool ChangesNothing(const RebalancePlan& plan);

// Pieces of the new generation whose bytes must be copied.
std::vector<ExpertPieceFile> NewPieces(const RebalancePlan& plan, size_t table, CopyKind kind);

// Bytes [begin, end) of every slot of a file that no piece uses any more; a file without any piece is to be removed.
struct Vacated {
  std::string path;
  bool whole_file = false;
  uint64_t stride = 0, slots = 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // in a slot
};
std::vector<Vacated> VacatedRanges(const RebalancePlan& plan);

}  // namespace deltafin
