#include "backend/cpu/cpu_isa.h"

#include "backend/cpu/highway_targets.h"

namespace deltafin::cpu {
namespace {

struct IsaRow {
  Isa isa;
  std::string_view name;
  int64_t target;  // Highway's bit
};

// Best first.
constexpr IsaRow kIsas[] = {
    {Isa::kAvx512Vnni, "avx512_vnni", HWY_AVX3},
    {Isa::kAvx512, "avx512", HWY_AVX3},
    {Isa::kAvx2, "avx2", HWY_AVX2},
    {Isa::kNeon, "neon", HWY_NEON},
};

bool IsBuilt(const IsaRow& row) { return (HWY_TARGETS & row.target) != 0; }
bool IsSupported(const IsaRow& row) {
  return (HWY_SUPPORTED_TARGETS & row.target) != 0 && (row.isa != Isa::kAvx512Vnni || ProcessorHasVnni());
}

}  // namespace

Result<Isa> SelectIsa(std::string_view name) {
  for (const IsaRow& row : kIsas) {
    if (name == "auto" && IsBuilt(row) && IsSupported(row)) return row.isa;
    if (name != row.name) continue;
    if (!IsBuilt(row)) return Fail(ErrorCode::kUnavailable, "--isa ", name, ": this build has no kernels for it");
    if (!IsSupported(row)) return Fail(ErrorCode::kUnavailable, "--isa ", name, ": this processor lacks it");
    return row.isa;
  }
  if (name == "auto") {
    return Fail(ErrorCode::kUnavailable, "--isa auto: this processor has none of avx2 with FMA, avx512, neon");
  }
  return Fail(ErrorCode::kInvalidArgument, "--isa ", name, ": expected one of auto, avx2, avx512, avx512_vnni, neon");
}

std::string_view ToString(Isa isa) {
  for (const IsaRow& row : kIsas) {
    if (row.isa == isa) return row.name;
  }
  return "?";
}

CpuKernels KernelsFor(Isa isa) {
  CpuKernels kernels = {};
  FillLinear(isa, kernels);
  FillLinearBf12(isa, kernels);
  FillMxfp4(isa, kernels);
  if (isa == Isa::kAvx512Vnni) FillMxfp4Vnni(kernels);
  FillNormAct(isa, kernels);
  FillAttnRes(isa, kernels);
  FillRouter(isa, kernels);
  FillKda(isa, kernels);
  FillMla(isa, kernels);
  return kernels;
}

}  // namespace deltafin::cpu
