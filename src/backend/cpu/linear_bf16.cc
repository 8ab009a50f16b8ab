// Linear with BF16 or F32 weights, in the order of linear_tiles-inl.h.
#include <algorithm>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_bf16.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/linear_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

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

template <typename W>
struct PlainWeights {
  struct Row {
    // How far ahead of its reads a row is asked for: 8 KiB, into the L2 cache (kAskL2). Measured with one row of input
    // on Zen 4: from 0.62 to 0.82 of a plain read loop against 2 KiB and the L1 cache.
    static constexpr int64_t kAhead = 8192 / static_cast<int64_t>(sizeof(W));
    HWY_INLINE void Ask(int64_t c) const { __builtin_prefetch(w + c, 0, kAskL2); }
    HWY_INLINE void Load(int64_t c, VF& even, VF& odd) const { LoadPair(w + c, even, odd); }
    HWY_INLINE void LoadPartial(int64_t c, int64_t columns, VF& even, VF& odd) const {
      LoadPartialPair(w + c, columns, even, odd);
    }
    const W* w;
  };
  HWY_INLINE Row At(int64_t n) const { return {w + n * columns}; }
  HWY_INLINE PlainWeights Span(int64_t, int64_t, int64_t, int64_t, float*) const { return *this; }

  const W* w;
  int64_t columns;
};

void SplitColumns(const float* x, int64_t columns, int64_t row, int64_t rows, float* prepared) {
  const DF d;
  const TileRow to(prepared, columns, row, rows);
  for (int64_t c = 0; c < columns; c += kPair) {
    VF even, odd;
    if (c + kPair <= columns)
      LoadPair(x + c, even, odd);
    else
      LoadPartialPair(x + c, columns - c, even, odd);
    hn::Store(even, d, to.vector(c / kLanes));
    hn::Store(odd, d, to.vector(c / kLanes + 1));
  }
}

void Linear(const LinearTask& task, int64_t begin, int64_t end, float* scratch) {
  const int64_t columns = task.weight->shape[1];
  if (task.weight->dtype == DType::kBF16)
    LinearOutputs(PlainWeights<uint16_t>{task.weight->bf16(), columns}, task, begin, end, scratch);
  else
    LinearOutputs(PlainWeights<float>{task.weight->f32(), columns}, task, begin, end, scratch);
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

// `linear` needs the most: sums of a strip of 64 outputs, up to 16 lanes wide, for each row. `mxfp4` keeps 32 outputs,
// and 32 decoded vectors of 8 lanes of each.
int64_t MatrixScratchFloats() { return kMatrixRows * 64 * 16; }

void FillLinear(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillLinearTarget, kernels); }

}  // namespace deltafin::cpu
#endif
