// cpu_isa.h: which instruction sets this build and this processor have, and the kernel table of one.
//
// Reads Highway's processor detection; never changes its global state, so backends of different sets can live side by
// side. Thread rule: pure functions. Errors: as CreateCpuBackend.
#pragma once

#include <string_view>

#include "backend/cpu/cpu_kernels.h"
#include "base/result.h"

namespace deltafin::cpu {

// From a name of the command line; "auto" is the best available.
Result<Isa> SelectIsa(std::string_view name);

// "avx2", "avx512", "avx512_vnni", "neon".
std::string_view ToString(Isa isa);

CpuKernels KernelsFor(Isa isa);

}  // namespace deltafin::cpu
