// Linear with BF16 or F32 weights.
//
// Column order: blocks of 2 * lanes columns, first the even ones, then the odd ones, because a 32-bit lane of packed
// BF16 holds an even column below an odd one and two one-instruction masks take them apart. The input is reordered once
// per call. Accumulation of one (row, output): one vector accumulator over the blocks in order (even, then odd), then
// the lane sum. Few rows: decoded weights go from registers into the sums. Many rows: a panel of outputs is decoded
// into L1 once and used by tiles of rows. Both run the same operations in the same order.
#include <algorithm>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_bf16.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kPair = 2 * kLanes;  // columns of one block
constexpr int64_t kPanelColumns = 512;
constexpr int kPanelOutputs = kLanes == 8 ? 3 : 6;  // AVX2 has 16 registers, the others 32
constexpr int kPanelRows = 4;
constexpr int64_t kFewRows = 4;
// How far ahead of its reads a row's bytes are asked for. Measured on Zen: from 0.53 to 0.80 of a plain read loop's
// rate.
constexpr size_t kPrefetchBytes = 2048;

// Even and odd columns of one block.
HWY_INLINE void LoadPair(const uint16_t* w, VF& even, VF& odd) {
  const DU d;
  const VU bits = hn::LoadU(d, reinterpret_cast<const uint32_t*>(w));
  even = hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
  odd = hn::BitCast(DF(), hn::And(bits, hn::Set(d, 0xffff0000u)));
}
HWY_INLINE void LoadPair(const float* w, VF& even, VF& odd) {
  const DF d;
  const VF low = hn::LoadU(d, w), high = hn::LoadU(d, w + kLanes);
  even = hn::ConcatEven(d, high, low);
  odd = hn::ConcatOdd(d, high, low);
}

// The last, partial block: zero-padded, so it runs like the others.
template <typename W>
HWY_INLINE void LoadPartialPair(const W* w, int64_t columns, VF& even, VF& odd) {
  HWY_ALIGN W buffer[kPair] = {};
  std::memcpy(buffer, w, static_cast<size_t>(columns) * sizeof(W));
  LoadPair(buffer, even, odd);
}

void SplitColumns(const float* x, int64_t columns, float* prepared) {
  const DF d;
  int64_t c = 0;
  for (; c < columns; c += kPair) {
    VF even, odd;
    if (c + kPair <= columns)
      LoadPair(x + c, even, odd);
    else
      LoadPartialPair(x + c, columns - c, even, odd);
    hn::StoreU(even, d, prepared + c);
    hn::StoreU(odd, d, prepared + c + kLanes);
  }
}

// kOutputs x kRows sums, weights decoded in registers.
template <int kOutputs, int kRows, typename W>
HWY_INLINE void DirectTile(const W* w, int64_t columns, const LinearTask& task, int64_t first) {
  const DF d;
  VF sum[kOutputs][kRows];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::Zero(d);
  }
  for (int64_t c = 0; c < columns; c += kPair) {
    const bool is_partial = c + kPair > columns;
    VF even[kOutputs], odd[kOutputs];
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const W* at = w + n * columns + c;
      __builtin_prefetch(at + kPrefetchBytes / sizeof(W));
      if (HWY_UNLIKELY(is_partial))
        LoadPartialPair(at, columns - c, even[n], odd[n]);
      else
        LoadPair(at, even[n], odd[n]);
    }
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float* x = task.x + r * task.x_stride + c;
      const VF x_even = hn::Load(d, x), x_odd = hn::Load(d, x + kLanes);
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) sum[n][r] = hn::MulAdd(even[n], x_even, sum[n][r]);
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) sum[n][r] = hn::MulAdd(odd[n], x_odd, sum[n][r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kOutputs; ++n) task.out.row(r)[first + n] = SumLanes(sum[n][r]);
  }
}

template <int kRows, typename W>
void Direct(const W* w, int64_t columns, const LinearTask& task, int64_t begin, int64_t end) {
  constexpr int kOutputs = kRows <= 2 || kLanes != 8 ? 4 : 2;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) DirectTile<kOutputs, kRows>(w + n * columns, columns, task, n);
  for (; n < end; ++n) DirectTile<1, kRows>(w + n * columns, columns, task, n);
}

// Adds `steps` products to kOutputs x kRows sums held in memory: panel [kOutputs, kPanelColumns], sums [rows,
// kPanelOutputs].
template <int kOutputs, int kRows>
HWY_INLINE void PanelTile(const float* panel, const float* x, int64_t x_stride, int64_t columns, float* sums) {
  const DF d;
  VF sum[kOutputs][kRows];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::Load(d, sums + (r * kPanelOutputs + n) * kLanes);
  }
  for (int64_t c = 0; c < columns; c += kLanes) {
    VF xs[kRows];
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) xs[r] = hn::Load(d, x + r * x_stride + c);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const VF w = hn::Load(d, panel + n * kPanelColumns + c);
      DFIN_UNROLL
      for (int r = 0; r < kRows; ++r) sum[n][r] = hn::MulAdd(w, xs[r], sum[n][r]);
    }
  }
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) hn::Store(sum[n][r], d, sums + (r * kPanelOutputs + n) * kLanes);
  }
}

// Decodes columns [c, c + width) of one output into the panel; returns the width padded to whole blocks.
template <typename W>
HWY_INLINE int64_t DecodePanelRow(const W* w, int64_t width, float* panel) {
  const DF d;
  int64_t c = 0;
  for (; c < width; c += kPair) {
    VF even, odd;
    if (c + kPair <= width)
      LoadPair(w + c, even, odd);
    else
      LoadPartialPair(w + c, width - c, even, odd);
    hn::Store(even, d, panel + c);
    hn::Store(odd, d, panel + c + kLanes);
  }
  return c;
}

template <int kOutputs, typename W>
void Panel(const W* w, int64_t columns, const LinearTask& task, int64_t first, float* scratch) {
  const DF d;
  float* panel = scratch;
  float* sums = scratch + kPanelOutputs * kPanelColumns;
  std::memset(sums, 0, static_cast<size_t>(task.rows * kPanelOutputs * kLanes) * sizeof(float));
  for (int64_t c = 0; c < columns; c += kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, columns - c);
    int64_t padded = 0;
    for (int n = 0; n < kOutputs; ++n) padded = DecodePanelRow(w + n * columns + c, width, panel + n * kPanelColumns);
    int64_t r = 0;
    for (; r + kPanelRows <= task.rows; r += kPanelRows) {
      PanelTile<kOutputs, kPanelRows>(panel, task.x + r * task.x_stride + c, task.x_stride, padded,
                                      sums + r * kPanelOutputs * kLanes);
    }
    for (; r < task.rows; ++r) {
      PanelTile<kOutputs, 1>(panel, task.x + r * task.x_stride + c, task.x_stride, padded,
                             sums + r * kPanelOutputs * kLanes);
    }
  }
  for (int64_t r = 0; r < task.rows; ++r) {
    for (int n = 0; n < kOutputs; ++n) {
      task.out.row(r)[first + n] = SumLanes(hn::Load(d, sums + (r * kPanelOutputs + n) * kLanes));
    }
  }
}

template <typename W>
void LinearTyped(const W* w, const LinearTask& task, int64_t begin, int64_t end, float* scratch) {
  const int64_t columns = task.weight->shape[1];
  switch (task.rows) {
    case 0:
      return;
    case 1:
      return Direct<1>(w, columns, task, begin, end);
    case 2:
      return Direct<2>(w, columns, task, begin, end);
    case 3:
      return Direct<3>(w, columns, task, begin, end);
    case kFewRows:
      return Direct<kFewRows>(w, columns, task, begin, end);
    default:
      break;
  }
  int64_t n = begin;
  for (; n + kPanelOutputs <= end; n += kPanelOutputs) Panel<kPanelOutputs>(w + n * columns, columns, task, n, scratch);
  for (; n < end; ++n) Panel<1>(w + n * columns, columns, task, n, scratch);
}

void Linear(const LinearTask& task, int64_t begin, int64_t end, float* scratch) {
  if (task.weight->dtype == DType::kBF16)
    LinearTyped(task.weight->bf16(), task, begin, end, scratch);
  else
    LinearTyped(task.weight->f32(), task, begin, end, scratch);
}

void FillLinearTarget(CpuKernels& kernels) {
  kernels.split_columns = SplitColumns;
  kernels.linear = Linear;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

// Panel of 6 outputs x 512 columns, 6 scale vectors (MXFP4), and 6 sums of up to 16 lanes for each row.
int64_t MatrixScratchFloats() { return 6 * 512 + 6 * 16 + kMatrixRows * 6 * 16; }

void FillLinear(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillLinearTarget, kernels); }

}  // namespace deltafin::cpu
#endif
