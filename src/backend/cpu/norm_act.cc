// RmsNorm, GatedHeadNorm, gates, SiTU-GLU, CombineExperts and the elementwise helpers.
#include <cmath>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/norm_act.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE float InverseRms(const float* x, int64_t width, float eps) {
  return 1.0f / std::sqrt(SumSquares(x, width) / static_cast<float>(width) + eps);
}

void RmsNorm(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.width;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = args.x.row(r);
    const VF factor = hn::Set(DF(), InverseRms(x, width, args.eps));
    for (int64_t c = 0; c < width; c += kLanes) {
      const VF normed = hn::Mul(LoadSome(x + c, width - c), factor);
      StoreSome(hn::Mul(normed, LoadSomeWeight(args.weight, c, width - c)), args.out.row(r) + c, width - c);
    }
  }
}

void GatedHeadNorm(const GatedHeadNormArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.x.width / args.heads;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const float *x = args.x.row(r) + head * dim, *gate = args.gate.row(r) + head * dim;
      float* out = args.out.row(r) + head * dim;
      const VF factor = hn::Set(DF(), InverseRms(x, dim, args.eps));
      for (int64_t c = 0; c < dim; c += kLanes) {
        const VF normed = hn::Mul(hn::Mul(LoadSome(x + c, dim - c), factor), LoadSomeWeight(args.weight, c, dim - c));
        StoreSome(hn::Mul(normed, Sigmoid(LoadSome(gate + c, dim - c))), out + c, dim - c);
      }
    }
  }
}

// Terms in ascending expert index; the first is a plain product.
void CombineExperts(const CombineExpertsArgs& args, int64_t begin, int64_t end) {
  const DF d;
  const int64_t width = args.out.width;
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* order = args.order.data() + r * args.top_k;
    const float* weights = args.weights.data() + r * args.top_k;
    for (int64_t c = 0; c < width; c += kLanes) {
      VF sum = hn::Zero(d);
      for (int64_t i = 0; i < args.top_k; ++i) {
        const VF part = LoadSome(args.partial.row(r * args.top_k + order[i]) + c, width - c);
        const VF weight = hn::Set(d, weights[order[i]]);
        sum = i == 0 ? hn::Mul(weight, part) : hn::MulAdd(weight, part, sum);
      }
      StoreSome(sum, args.out.row(r) + c, width - c);
    }
  }
}

void AddExpert(const AddExpertArgs& args, int64_t begin, int64_t end) {
  const DF d;
  const int64_t width = args.out.width;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t route = args.routes[static_cast<size_t>(i)], row = route / args.top_k;
    const bool is_first = args.order[static_cast<size_t>(row * args.top_k)] == route % args.top_k;
    const VF weight = hn::Set(d, args.weights[static_cast<size_t>(route)]);
    const float* partial = args.partial.row(i);
    float* out = args.out.row(row);
    for (int64_t c = 0; c < width; c += kLanes) {
      const VF part = LoadSome(partial + c, width - c);
      const VF sum = is_first ? hn::Mul(weight, part) : hn::MulAdd(weight, part, LoadSome(out + c, width - c));
      StoreSome(sum, out + c, width - c);
    }
  }
}

void SigmoidGate(float* x, const float* gate, int64_t n) {
  for (int64_t c = 0; c < n; c += kLanes) {
    StoreSome(hn::Mul(LoadSome(x + c, n - c), Sigmoid(LoadSome(gate + c, n - c))), x + c, n - c);
  }
}

void SituGlu(const float* gate, const float* up, float beta, float linear_beta, float* out, int64_t n) {
  const DF d;
  const VF b = hn::Set(d, beta), lb = hn::Set(d, linear_beta);
  for (int64_t c = 0; c < n; c += kLanes) {
    const VF g = LoadSome(gate + c, n - c), u = LoadSome(up + c, n - c);
    const VF activated = hn::Mul(hn::Mul(b, Tanh(hn::Div(g, b))), Sigmoid(g));
    const VF linear = hn::Mul(lb, Tanh(hn::Div(u, lb)));
    StoreSome(hn::Mul(activated, linear), out + c, n - c);
  }
}

void WidenBf16(const uint16_t* from, float* out, int64_t n) {
  for (int64_t c = 0; c < n; c += kLanes) StoreSome(LoadSomeBf16(from + c, n - c), out + c, n - c);
}

void AddTo(const float* x, float* out, int64_t n) {
  for (int64_t c = 0; c < n; c += kLanes) {
    StoreSome(hn::Add(LoadSome(out + c, n - c), LoadSome(x + c, n - c)), out + c, n - c);
  }
}

void FillNormActTarget(CpuKernels& kernels) {
  kernels.rms_norm = RmsNorm;
  kernels.gated_head_norm = GatedHeadNorm;
  kernels.combine_experts = CombineExperts;
  kernels.add_expert = AddExpert;
  kernels.sigmoid_gate = SigmoidGate;
  kernels.situ_glu = SituGlu;
  kernels.widen_bf16 = WidenBf16;
  kernels.add = AddTo;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

void FillNormAct(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillNormActTarget, kernels); }

}  // namespace deltafin::cpu
#endif
