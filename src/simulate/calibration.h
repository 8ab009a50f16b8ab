// calibration: the published engine on the published machines, simulated, beside what was measured there.
//
// The targets are C1 to C15: decode and prompts on one to four drives, drafts, caches, look-ahead, layouts. Parameters
// of the published engine were set by C1, C6 and C9, the scenario of C12 by its own rows; the other rows are
// predictions, and stay as they come out. Rows are means over several seeds, from `seed` on. Pure functions; some
// seconds of work.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/model_shape.h"
#include "simulate/target_row.h"

namespace deltafin::simulate {

// `shape` is Kimi K3's.
Result<std::vector<TargetRow>> Calibrate(const ModelShape& shape, uint64_t seed);
// Of them those about caches, with one seed: they replay a made-up trace and know no time.
std::vector<TargetRow> CalibrateCaches(const ModelShape& shape, uint64_t seed);

}  // namespace deltafin::simulate
