// ShortConv and the KDA recurrence (K3 report section 2.1.1, Eq. 1-6): q, k, v, S, alpha, beta as in the paper.
//
// Kda walks one head through all its rows while the state sits in cache, vectorised over the value channels; the sums
// over key channels run in ascending order, one accumulator a channel.
#include <algorithm>
#include <cmath>

#include "backend/check_args.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kda.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

// kLanes channels from `c` (`n` of them real): all rows, then the new tail.
HWY_INLINE void ConvChannels(const ShortConvArgs& args, int64_t c, int64_t n, float* taps_by_lane) {
  const DF d;
  const int64_t taps = ConvTaps(args.kernel), rows = args.x.rows;
  for (int64_t i = 0; i < taps; ++i) {
    for (int64_t l = 0; l < kLanes; ++l) {
      taps_by_lane[i * kLanes + l] = l < n ? args.kernel.f32()[(c + l) * taps + i] : 0.0f;
    }
  }
  const auto seen = [&](int64_t t) { return (t < taps - 1 ? args.tail.row(t) : args.x.row(t - (taps - 1))) + c; };
  for (int64_t t = 0; t < rows; ++t) {
    VF sum = hn::Mul(LoadSome(seen(t), n), hn::Load(d, taps_by_lane));
    for (int64_t i = 1; i < taps; ++i) {
      sum = hn::MulAdd(LoadSome(seen(t + i), n), hn::Load(d, taps_by_lane + i * kLanes), sum);
    }
    StoreSome(hn::Mul(sum, Sigmoid(sum)), args.out.row(t) + c, n);
  }
  // Ascending, so that with one tail for both a row is read before it is overwritten.
  for (int64_t i = 0; i < taps - 1; ++i) StoreSome(LoadSome(seen(rows + i), n), args.next_tail.row(i) + c, n);
}

void ShortConv(const ShortConvArgs& args, int64_t begin, int64_t end, float* scratch) {
  for (int64_t c = begin; c < end; c += kLanes) ConvChannels(args, c, std::min(kLanes, end - c), scratch);
}

// One row of one head: per key channel the factors of Eq. 1-6.
struct KdaRow {
  float* alpha;      // exp(log_alpha)
  float* k_decayed;  // k' * alpha, for S^T k' of the decayed state
  float* k_beta;     // beta * k'
  float* q;          // q'
};

HWY_INLINE void PrepareRow(const KdaArgs& args, int64_t head, int64_t row, float rate, const KdaRow& out) {
  const DF d;
  const int64_t dim = args.head_dim, at = head * dim;
  const float *q = args.q.row(row) + at, *k = args.k.row(row) + at, *raw = args.raw_decay.row(row) + at;
  const float* dt_bias = args.dt_bias.f32() + at;
  const VF q_factor =
      hn::Set(d, 1.0f / std::sqrt(SumSquares(q, dim) + 1e-6f) * (1.0f / std::sqrt(static_cast<float>(dim))));
  const VF k_factor = hn::Set(d, 1.0f / std::sqrt(SumSquares(k, dim) + 1e-6f));
  const VF beta = hn::Set(d, ScalarSigmoid(args.raw_beta.row(row)[head]));
  for (int64_t i = 0; i < dim; i += kLanes) {
    const int64_t n = dim - i;
    const VF biased = hn::Add(LoadSome(raw + i, n), LoadSome(dt_bias + i, n));
    const VF gate = Sigmoid(hn::Mul(hn::Set(d, rate), biased));
    // lower_bound is negative, so the exponent is too.
    const VF alpha = ExpNonPositive(hn::Mul(hn::Set(d, args.lower_bound), gate));
    const VF k_unit = hn::Mul(LoadSome(k + i, n), k_factor);
    StoreSome(alpha, out.alpha + i, n);
    StoreSome(hn::Mul(k_unit, alpha), out.k_decayed + i, n);
    StoreSome(hn::Mul(k_unit, beta), out.k_beta + i, n);
    StoreSome(hn::Mul(LoadSome(q + i, n), q_factor), out.q + i, n);
  }
}

// kVectors vectors of value channels, the last one holding `n` channels; `before` and `after` point at the first of
// them in the state.
template <int kVectors>
HWY_INLINE void StepColumns(const KdaRow& row, const float* v, int64_t dim, int64_t n, const float* before,
                            float* after, float* out) {
  const DF d;
  const auto lanes = [n](int u) { return u + 1 < kVectors ? kLanes : n; };
  VF predicted[kVectors], sum[kVectors];
  DFIN_UNROLL
  for (int u = 0; u < kVectors; ++u) predicted[u] = sum[u] = hn::Zero(d);
  for (int64_t i = 0; i < dim; ++i) {
    const VF k = hn::Set(d, row.k_decayed[i]);
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      predicted[u] = hn::MulAdd(k, LoadSome(before + i * dim + u * kLanes, lanes(u)), predicted[u]);
    }
  }
  DFIN_UNROLL
  for (int u = 0; u < kVectors; ++u) predicted[u] = hn::Sub(LoadSome(v + u * kLanes, lanes(u)), predicted[u]);
  for (int64_t i = 0; i < dim; ++i) {
    const VF alpha = hn::Set(d, row.alpha[i]), k = hn::Set(d, row.k_beta[i]), q = hn::Set(d, row.q[i]);
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      const int64_t at = i * dim + u * kLanes;
      const VF s = hn::MulAdd(k, predicted[u], hn::Mul(alpha, LoadSome(before + at, lanes(u))));
      StoreSome(s, after + at, lanes(u));
      sum[u] = hn::MulAdd(q, s, sum[u]);
    }
  }
  DFIN_UNROLL
  for (int u = 0; u < kVectors; ++u) StoreSome(sum[u], out + u * kLanes, lanes(u));
}

void Kda(const KdaArgs& args, int64_t begin, int64_t end, float* scratch) {
  constexpr int kVectors = kLanes == 8 ? 4 : 8;
  const int64_t dim = args.head_dim;
  const KdaRow factors = {scratch, scratch + dim, scratch + 2 * dim, scratch + 3 * dim};
  for (int64_t head = begin; head < end; ++head) {
    float* after = args.after + head * dim * dim;
    const float rate = std::exp(args.a_log.f32()[head]);
    // The first row reads what was and writes what will be, so that nobody copies the state (6 MB a layer of K3).
    for (int64_t r = 0; r < args.q.rows; ++r) {
      PrepareRow(args, head, r, rate, factors);
      const float* before = r == 0 ? args.before + head * dim * dim : after;
      const float* v = args.v.row(r) + head * dim;
      float* out = args.out.row(r) + head * dim;
      int64_t j = 0;
      for (; j + kVectors * kLanes <= dim; j += kVectors * kLanes) {
        StepColumns<kVectors>(factors, v + j, dim, kLanes, before + j, after + j, out + j);
      }
      for (; j < dim; j += kLanes)
        StepColumns<1>(factors, v + j, dim, std::min(kLanes, dim - j), before + j, after + j, out + j);
    }
  }
}

void FillKdaTarget(CpuKernels& kernels) {
  kernels.short_conv = ShortConv;
  kernels.kda = Kda;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

int64_t KdaScratchFloats(int64_t head_dim) { return 4 * head_dim; }
int64_t ConvScratchFloats(int64_t taps) { return taps * 16; }

void FillKda(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillKdaTarget, kernels); }

}  // namespace deltafin::cpu
#endif
