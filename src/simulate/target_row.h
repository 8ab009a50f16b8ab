// target_row: one line of a comparison: what was measured somewhere, what the simulator says, and whether that is near
// enough.
//
// A value type. A target is a number or a range; near enough is a tenth beyond it unless `tolerance` says otherwise. A
// row that was simulated with several seeds holds their mean, and says how far they lie apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace deltafin::simulate {

// Whether anything was chosen by a row, so that it predicts nothing.
enum class RowRole : uint8_t {
  kPrediction,
  kParameters,  // parameters of the simulated engine
  kScenario,    // the machine or the engine of this row alone
};

struct TargetRow {
  std::string id;            // "C2"
  std::string what;          // "two full copies, 13.6 + 7.1 GB/s"
  std::string unit;          // "tokens/s"
  double low = 0, high = 0;  // equal: a number
  double simulated = 0;
  double tolerance = -1;  // in units of the target; negative: a tenth of the nearer end
  RowRole role = RowRole::kPrediction;
  int seeds = 1;               // that `simulated` is the mean of
  double least = 0, most = 0;  // of them

  double allowed() const;
  // From the nearer end of the target: 0 inside.
  double difference() const;
  bool holds() const;
  // "holds", "MISSED (set by it)"
  std::string verdict() const;
};

// The rows of `simulate(seed)` for so many seeds from `first` on: means, least and most. Every call gives the same
// rows.
Result<std::vector<TargetRow>> OverSeeds(uint64_t first, int count,
                                         const std::function<Result<std::vector<TargetRow>>(uint64_t)>& simulate);

// As a Markdown table.
std::string ToMarkdown(const std::vector<TargetRow>& rows);

}  // namespace deltafin::simulate
