// MixResiduals: AttnRes, the softmax over depth (K3 report section 2.2, Eq. 9-10).
//
// Scores, then the weighted sum, both running over the candidates in order. The number of blocks is small and bounded
// by the layer count; candidates are re-read rather than collected, so no list is needed.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attn_res.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE const float* Candidate(const MixResidualsArgs& args, size_t i, int64_t row) {
  return i < args.blocks.size() ? args.blocks[i].row(row) : args.prefix_sum.row(row);
}

HWY_INLINE float Score(const MixResidualsArgs& args, const float* x) {
  const DF d;
  const int64_t width = args.prefix_sum.width;
  VF dot[2] = {hn::Zero(d), hn::Zero(d)};
  for (int64_t c = 0, turn = 0; c < width; c += kLanes, turn ^= 1) {
    const VF direction = hn::Mul(LoadSomeWeight(args.norm, c, width - c), LoadSomeWeight(args.proj, c, width - c));
    dot[turn] = hn::MulAdd(LoadSome(x + c, width - c), direction, dot[turn]);
  }
  const float mean = SumSquares(x, width) / static_cast<float>(width);
  return SumLanes(hn::Add(dot[0], dot[1])) / std::sqrt(mean + args.eps);
}

// Candidates whose scores are held at once; deeper stacks merge chunk by chunk like an online softmax.
constexpr size_t kChunk = 32;

// Adds weight[i] * candidate first + i to out; the first chunk starts from zero.
HWY_INLINE void AddWeighted(const MixResidualsArgs& args, int64_t row, size_t first, size_t count,
                            const float* weight) {
  const DF d;
  const int64_t width = args.out.width;
  float* out = args.out.row(row);
  for (int64_t c = 0; c < width; c += kLanes) {
    VF sum = first == 0 ? hn::Zero(d) : LoadSome(out + c, width - c);
    for (size_t i = 0; i < count; ++i) {
      const VF x = LoadSome(Candidate(args, first + i, row) + c, width - c);
      sum = hn::MulAdd(hn::Set(d, weight[i]), x, sum);
    }
    StoreSome(sum, out + c, width - c);
  }
}

void MixRow(const MixResidualsArgs& args, int64_t row) {
  const size_t candidates = args.blocks.size() + 1;
  // First pass: the largest score and the sum of exponentials, chunk by chunk.
  float score[kChunk];
  float largest = Score(args, Candidate(args, 0, row)), total = 0;
  const auto load_scores = [&](size_t first) HWY_ATTR {
    const size_t count = std::min(kChunk, candidates - first);
    for (size_t i = 0; i < count; ++i) score[i] = Score(args, Candidate(args, first + i, row));
    return count;
  };
  for (size_t first = 0; first < candidates; first += kChunk) {
    const size_t count = load_scores(first);
    const float before = largest;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, score[i]);
    total *= ScalarExpNonPositive(before - largest);
    for (size_t i = 0; i < count; ++i) total += ScalarExpNonPositive(score[i] - largest);
  }
  // Second pass: the sum. Scores of a single chunk are still there.
  for (size_t first = 0; first < candidates; first += kChunk) {
    const size_t count = candidates > kChunk ? load_scores(first) : candidates;
    for (size_t i = 0; i < count; ++i) score[i] = ScalarExpNonPositive(score[i] - largest) / total;
    AddWeighted(args, row, first, count, score);
  }
}

void MixResiduals(const MixResidualsArgs& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) MixRow(args, r);
}

void FillAttnResTarget(CpuKernels& kernels) { kernels.mix_residuals = MixResiduals; }

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

void FillAttnRes(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillAttnResTarget, kernels); }

}  // namespace deltafin::cpu
#endif
