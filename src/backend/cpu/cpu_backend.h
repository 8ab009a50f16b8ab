// CpuBackend: operations on the processor's SIMD units and a pool of threads.
//
// One object has one instruction set, chosen when it is made ("auto": the best this processor has); its name says
// which, and results are bit-identical within a name. It owns its threads and, after Reserve(), its scratch memory:
// nothing is allocated by an operation. It reads weights where they lie and keeps no copy of them. Thread rule: one
// caller at a time. Errors: kInvalidArgument for an unknown name or a thread count below 1, kUnavailable for an
// instruction set that this build or this processor lacks, and where workers cannot be pinned.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/registry.h"

namespace deltafin {

Result<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options);

}  // namespace deltafin
