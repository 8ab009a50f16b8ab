// Router: scores to the chosen experts and their weights (K3 report section 2.3, Eq. 11).
#include <limits>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/router.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

// What the choice sorts by. NaN becomes -infinity, so that the ids stay a valid choice whatever the input.
HWY_INLINE float Rank(float score, float bias) {
  const float rank = score + bias;
  return rank == rank ? rank : -std::numeric_limits<float>::infinity();
}

// Inserts experts in ascending index behind equals, which puts the lower index first on ties.
void SelectRow(const float* scores, const float* bias, int64_t experts, int64_t top_k, int32_t* ids) {
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float rank = Rank(scores[e], bias[e]);
    if (count == top_k) {
      const int32_t last = ids[top_k - 1];
      if (!(rank > Rank(scores[last], bias[last]))) continue;
      --count;
    }
    int64_t at = count++;
    for (; at > 0 && rank > Rank(scores[ids[at - 1]], bias[ids[at - 1]]); --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
  }
}

void RouterSelect(const RouterArgs& args, int64_t begin, int64_t end) {
  const int64_t experts = args.scores.width;
  for (int64_t r = begin; r < end; ++r) {
    float* scores = args.scores.row(r);
    for (int64_t e = 0; e < experts; e += kLanes) {
      StoreSome(Sigmoid(LoadSome(scores + e, experts - e)), scores + e, experts - e);
    }
    int32_t* ids = args.expert_ids.data() + r * args.top_k;
    float* weights = args.expert_weights.data() + r * args.top_k;
    SelectRow(scores, args.bias.f32(), experts, args.top_k, ids);
    float sum = 0;
    for (int64_t i = 0; i < args.top_k; ++i) sum += scores[ids[i]];
    for (int64_t i = 0; i < args.top_k; ++i) weights[i] = scores[ids[i]] / (sum + 1e-20f) * args.scaling;
  }
}

void FillRouterTarget(CpuKernels& kernels) { kernels.router_select = RouterSelect; }

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

void FillRouter(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillRouterTarget, kernels); }

}  // namespace deltafin::cpu
#endif
