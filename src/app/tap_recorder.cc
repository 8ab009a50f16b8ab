#include "app/tap_recorder.h"

namespace deltafin {

void TapRecorder::OnRows(const std::string& name, const ConstRows& rows) {
  Floats& kept = floats_[name];
  kept.width = rows.width;
  for (int64_t r = 0; r < rows.rows; ++r) kept.values.insert(kept.values.end(), rows.row(r), rows.row(r) + rows.width);
}

void TapRecorder::OnIds(const std::string& name, std::span<const int32_t> ids, int64_t per_row) {
  Ids& kept = ids_[name];
  kept.width = per_row;
  kept.values.insert(kept.values.end(), ids.begin(), ids.end());
}

}  // namespace deltafin
