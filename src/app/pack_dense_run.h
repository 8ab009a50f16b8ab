// pack_dense_run.h: `deltafin pack --dense` once its options are known to fit together: progress, report, exit code.
//
// Thread rule: main thread. Errors: those of PackDense.
#pragma once

#include "base/result.h"
#include "pack/pack_dense.h"

namespace deltafin {

Result<int> RunPackDense(PackDenseOptions options, bool quiet);

}  // namespace deltafin
