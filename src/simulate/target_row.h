// target_row: one line of a comparison: what was measured somewhere, what the simulator says, and whether that is near
// enough.
//
// A value type. A target is a number or a range; near enough is a tenth beyond it unless `tolerance` says otherwise.
#pragma once

#include <string>
#include <vector>

namespace deltafin::simulate {

struct TargetRow {
  std::string id;            // "C2"
  std::string what;          // "two full copies, 13.6 + 7.1 GB/s"
  std::string unit;          // "tokens/s"
  double low = 0, high = 0;  // equal: a number
  double simulated = 0;
  double tolerance = -1;  // in units of the target; negative: a tenth of the nearer end
  bool is_set = false;    // parameters were chosen by it, so it predicts nothing

  double allowed() const;
  // From the nearer end of the target: 0 inside.
  double difference() const;
  bool holds() const;
};

// As a Markdown table.
std::string ToMarkdown(const std::vector<TargetRow>& rows);

}  // namespace deltafin::simulate
