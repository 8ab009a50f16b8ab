// limit_loops.h: loops that do nothing but load memory, and nothing but multiply and add: the limits that kernels are
// held against, with the same instruction set as the kernels.
//
// Pure functions; results are only there so that the work is not left out. Thread rule: any thread.
#pragma once

#include <cstdint>

#include "backend/cpu/cpu_kernels.h"
#include "base/bytes.h"

namespace deltafin::cpu {

// Loads every byte once, whole vectors in order; the last incomplete group of 8 vectors is left out.
uint64_t ReadMemory(Isa isa, Bytes data);

// Float32 multiply-adds on registers, enough of them independent to fill the units. Returns how many were made.
int64_t MultiplyAdds(Isa isa, int64_t steps);

}  // namespace deltafin::cpu
