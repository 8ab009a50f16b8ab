// simd-inl.h: what every kernel needs per Highway target: vector types, partial loads, exp, sigmoid, tanh.
//
// Included once per target (guard toggles), after highway_targets.h and foreach_target.h. Elementwise functions give a
// lane the same bits whatever the other lanes hold, so a partial vector is computed like a full one. Accuracy against
// double: exp 1 ulp, sigmoid 4 ulp, tanh 6 ulp (tests/backend/gates_test.cc holds 1e-6 relative). Thread rule: pure
// functions.
#if defined(DELTAFIN_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFIN_BACKEND_CPU_SIMD_INL_H_
#undef DELTAFIN_BACKEND_CPU_SIMD_INL_H_
#else
#define DELTAFIN_BACKEND_CPU_SIMD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;
using DI = hn::ScalableTag<int32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using DU16 = hn::Rebind<uint16_t, DF>;  // half a vector: as many lanes as DF
constexpr int64_t kLanes = hn::MaxLanes(DF());

// The first n of a vector's lanes, the others zero; full vectors take the plain path.
HWY_INLINE VF LoadSome(const float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n >= kLanes)) return hn::LoadU(d, p);
  HWY_ALIGN float buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(d, buffer);
}

HWY_INLINE void StoreSome(VF v, float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n >= kLanes)) {
    hn::StoreU(v, d, p);
    return;
  }
  HWY_ALIGN float buffer[kLanes];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}

// kLanes consecutive BF16 values.
HWY_INLINE VF LoadBf16(const uint16_t* p) {
  const VU bits = hn::PromoteTo(DU(), hn::LoadU(DU16(), p));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE VF LoadSomeBf16(const uint16_t* p, int64_t n) {
  if (HWY_LIKELY(n >= kLanes)) return LoadBf16(p);
  HWY_ALIGN uint16_t buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return LoadBf16(buffer);
}

// A BF16 or F32 weight vector from element `at`.
HWY_INLINE VF LoadSomeWeight(const TensorView& weight, int64_t at, int64_t n) {
  return weight.dtype == DType::kBF16 ? LoadSomeBf16(weight.bf16() + at, n) : LoadSome(weight.f32() + at, n);
}

HWY_INLINE float SumLanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }

// e^x for x <= 0; NaN stays NaN.
HWY_INLINE VF ExpNonPositive(VF x) {
  const DF d;
  // Below -104 the result rounds to zero; the bound also keeps the integer conversion inside Exp in range.
  const VF e = hn::Exp(d, hn::Max(x, hn::Set(d, -105.0f)));
  return hn::IfThenElse(hn::Eq(x, x), e, x);
}

// Only exponentials of non-positive numbers are taken, so nothing overflows and small results keep their relative
// accuracy.
HWY_INLINE VF Sigmoid(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF e = ExpNonPositive(hn::Neg(hn::Abs(x)));
  const VF numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

HWY_INLINE VF Tanh(VF x) {
  const DF d;
  // tanh(10) rounds to 1 in float32.
  const VF limit = hn::Set(d, 10.0f);
  const VF bounded = hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x);
  return hn::Tanh(d, bounded);
}

HWY_INLINE float ScalarExpNonPositive(float x) { return hn::GetLane(ExpNonPositive(hn::Set(DF(), x))); }
HWY_INLINE float ScalarSigmoid(float x) { return hn::GetLane(Sigmoid(hn::Set(DF(), x))); }

// Sum of squares of n values: four partial sums, folded in a fixed order.
HWY_INLINE float SumSquares(const float* x, int64_t n) {
  const DF d;
  VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t c = 0;
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) {
    DFIN_UNROLL
    for (int64_t u = 0; u < 4; ++u) {
      const VF v = hn::LoadU(d, x + c + u * kLanes);
      sum[u] = hn::MulAdd(v, v, sum[u]);
    }
  }
  for (; c < n; c += kLanes) {
    const VF v = LoadSome(x + c, n - c);
    sum[0] = hn::MulAdd(v, v, sum[0]);
  }
  return SumLanes(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
