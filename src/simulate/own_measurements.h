// own_measurements: this engine as it was measured on throttled drives, simulated: the drive ladder, caches of several
// sizes, prompts.
//
// The machine is described by its own limits (docs/PERFORMANCE.md) and the routing is a recorded one; no parameter was
// chosen by these figures but the share of a drive's rate (engine_model.cc). Which guesses come true is drawn: rows are
// means over several seeds, from `seed` on. Pure functions; some seconds of work.
// Errors: those of the synthetic shapes and of the recorded traces.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "simulate/target_row.h"

namespace deltafin::simulate {

Result<std::vector<TargetRow>> CompareOwnMeasurements(uint64_t seed);

}  // namespace deltafin::simulate
