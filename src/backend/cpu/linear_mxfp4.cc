// Linear with MXFP4 weights: decoded in registers from the on-disk order, at any byte address.
//
// A block is kLanes groups of 32 columns; lane l works on one whole group. The block's bytes are loaded as four vectors
// of 32-bit words and transposed inside 128-bit blocks, so that word q of every group forms a vector; its eight nibbles
// are columns 8q .. 8q + 7. Groups that do not fill a block go in tail steps of kLanes / 4 groups, where a lane holds
// one word. Accumulation of one (row, output): products of 16 columns (8 in a tail step) are summed without the scale,
// starting with a plain product, then multiplied by the group's scale and added to one accumulator with a single
// rounding; blocks in order, then the lane sum. Scaling sums, not weights, is exact for every scale byte and costs one
// operation for 16. Weights are decoded to twice their value (small integers) and scales to half of theirs, both exact.
#include <algorithm>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_mxfp4.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kSubBlocks = kLanes / 4;                  // 128-bit blocks of a vector
constexpr int64_t kBlockColumns = kLanes * kMxfp4Group;     // columns of a block
constexpr int64_t kTailColumns = kSubBlocks * kMxfp4Group;  // columns of a tail step
constexpr int64_t kWord = 8;                                // columns of a 32-bit word
constexpr int64_t kBlockVectors = 4 * kWord;                // decoded vectors of a block
constexpr int kPanelOutputs = kLanes == 8 ? 3 : 6;
constexpr int kPanelRows = 4;

using DU8 = hn::Rebind<uint8_t, DF>;  // kLanes bytes

// Group of a block that lane l works on after the transposition.
constexpr int64_t GroupOfLane(int64_t l) { return kSubBlocks * (l % 4) + l / 4; }

void GroupColumns(const float* x, int64_t columns, float* prepared) {
  int64_t c = 0;
  for (; c + kBlockColumns <= columns; c += kBlockColumns) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float* group = x + c + GroupOfLane(l) * kMxfp4Group;
      for (int64_t i = 0; i < kMxfp4Group; ++i) prepared[c + i * kLanes + l] = group[i];
    }
  }
  for (; c < columns; c += kTailColumns) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const int64_t word = c + l * kWord;
      for (int64_t i = 0; i < kWord; ++i) prepared[c + i * kLanes + l] = word < columns ? x[word + i] : 0.0f;
    }
  }
}

// One 32-bit word of every lane, ready for DecodeColumn. With 16 lanes a permutation is the table lookup (it reads the
// low four bits only); with fewer, bytes are looked up and widened.
#if HWY_TARGET == HWY_AVX3
struct Words {
  VU bits;
};
HWY_INLINE Words PrepareWords(VU bits) { return {bits}; }
template <int kColumn>
HWY_INLINE VF DecodeColumn(const Words& words) {
  const DF d;
  HWY_ALIGN static constexpr float kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
  const VU nibble = kColumn == 0 ? words.bits : hn::ShiftRight<4 * kColumn>(words.bits);
  return hn::TableLookupLanes(hn::Load(d, kTwice), hn::Indices512<float>{nibble.raw});
}
#else
struct Words {
  VU even, odd;  // looked-up bytes of the even and odd columns
};
HWY_INLINE Words PrepareWords(VU bits) {
  const hn::Repartition<uint8_t, DU> d8;
  HWY_ALIGN static constexpr uint8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 255, 254, 253, 252, 250, 248, 244};
  const auto table = hn::LoadDup128(d8, kTwice);
  const VU mask = hn::Set(DU(), 0x0f0f0f0fu);
  const auto low = hn::BitCast(d8, hn::And(bits, mask));
  const auto high = hn::BitCast(d8, hn::And(hn::ShiftRight<4>(bits), mask));
  return {hn::BitCast(DU(), hn::TableLookupBytes(table, low)), hn::BitCast(DU(), hn::TableLookupBytes(table, high))};
}
template <int kColumn>
HWY_INLINE VF DecodeColumn(const Words& words) {
  const DI d;
  const auto bytes = hn::BitCast(d, kColumn % 2 == 0 ? words.even : words.odd);
  const auto top = hn::ShiftLeft<24 - 8 * (kColumn / 2)>(bytes);
  return hn::ConvertTo(DF(), hn::ShiftRight<24>(top));
}
#endif

// Half of 2^(byte - 127). Byte 0 is the subnormal 2^-127, the only one that is not its bits moved to the exponent.
HWY_INLINE VF HalfScale(hn::Vec<DU8> bytes) {
  const DU d;
  const VU bits = hn::Max(hn::ShiftLeft<23>(hn::PromoteTo(d, bytes)), hn::Set(d, 0x00400000u));
  return hn::Mul(hn::BitCast(DF(), bits), hn::Set(DF(), 0.5f));
}

// The four word vectors of a block and the scale of each lane's group.
struct Block {
  Words words[4];
  VF scale;
};

HWY_INLINE Block LoadBlock(const uint8_t* packed, const uint8_t* scale) {
  const DU d;
  const hn::Repartition<uint64_t, DU> d64;
  const hn::Repartition<uint8_t, DU> d8;
  const auto load = [&](int64_t v) HWY_ATTR { return hn::BitCast(d, hn::LoadU(d8, packed + v * kLanes * 4)); };
  const VU v0 = load(0), v1 = load(1), v2 = load(2), v3 = load(3);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v0, v1));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v0, v1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v2, v3));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v2, v3));
  HWY_ALIGN static constexpr uint8_t kGroups[16] = {GroupOfLane(0),  GroupOfLane(1),  GroupOfLane(2),  GroupOfLane(3),
                                                    GroupOfLane(4),  GroupOfLane(5),  GroupOfLane(6),  GroupOfLane(7),
                                                    GroupOfLane(8),  GroupOfLane(9),  GroupOfLane(10), GroupOfLane(11),
                                                    GroupOfLane(12), GroupOfLane(13), GroupOfLane(14), GroupOfLane(15)};
  const DU8 lane_bytes;
  const auto scales = hn::TableLookupBytes(hn::LoadU(lane_bytes, scale), hn::Load(lane_bytes, kGroups));
  return {{PrepareWords(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23))),
           PrepareWords(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23))),
           PrepareWords(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23))),
           PrepareWords(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)))},
          HalfScale(scales)};
}

// A tail step of 1 .. kSubBlocks groups, zero-padded; lane l holds word l % 4 of group l / 4.
struct TailStep {
  Words words;
  VF scale;
};

HWY_INLINE TailStep LoadTail(const uint8_t* packed, const uint8_t* scale, int64_t groups) {
  HWY_ALIGN uint8_t bytes[kLanes * 4] = {};
  HWY_ALIGN uint8_t scales[kLanes] = {};
  std::memcpy(bytes, packed, static_cast<size_t>(groups * kMxfp4GroupBytes));
  for (int64_t l = 0; l < groups * 4; ++l) scales[l] = scale[l / 4];
  const hn::Repartition<uint8_t, DU> d8;
  return {PrepareWords(hn::BitCast(DU(), hn::Load(d8, bytes))), HalfScale(hn::Load(DU8(), scales))};
}

// sum = w * x for the first column of a span, sum + w * x after it.
template <int kOutputs, int kRows, bool kFirst>
HWY_INLINE void Accumulate(const VF (&w)[kOutputs], const float* x, int64_t x_stride, VF (&span)[kOutputs][kRows]) {
  const DF d;
  DFIN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF xs = hn::Load(d, x + r * x_stride);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      span[n][r] = kFirst ? hn::Mul(w[n], xs) : hn::MulAdd(w[n], xs, span[n][r]);
    }
  }
}

template <int kOutputs, int kRows>
HWY_INLINE void AddScaled(const VF (&scale)[kOutputs], const VF (&span)[kOutputs][kRows], VF (&sum)[kOutputs][kRows]) {
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::MulAdd(scale[n], span[n][r], sum[n][r]);
  }
}

template <int kColumn, bool kFirst, int kOutputs, int kRows>
HWY_INLINE void DecodeAndAccumulate(const Words (&words)[kOutputs], const float* x, int64_t x_stride,
                                    VF (&span)[kOutputs][kRows]) {
  VF w[kOutputs];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) w[n] = DecodeColumn<kColumn>(words[n]);
  Accumulate<kOutputs, kRows, kFirst>(w, x + kColumn * kLanes, x_stride, span);
}

// The eight columns of a word.
template <bool kFirst, int kOutputs, int kRows>
HWY_INLINE void AccumulateWords(const Words (&words)[kOutputs], const float* x, int64_t x_stride,
                                VF (&span)[kOutputs][kRows]) {
  DecodeAndAccumulate<0, kFirst>(words, x, x_stride, span);
  DecodeAndAccumulate<1, false>(words, x, x_stride, span);
  DecodeAndAccumulate<2, false>(words, x, x_stride, span);
  DecodeAndAccumulate<3, false>(words, x, x_stride, span);
  DecodeAndAccumulate<4, false>(words, x, x_stride, span);
  DecodeAndAccumulate<5, false>(words, x, x_stride, span);
  DecodeAndAccumulate<6, false>(words, x, x_stride, span);
  DecodeAndAccumulate<7, false>(words, x, x_stride, span);
}

HWY_INLINE float* OutRow(const Mxfp4Task& task, int64_t r) {
  return task.out.row(task.out_rows == nullptr ? r : task.out_rows[r]);
}

// Few rows: decoded weights go straight into the sums.
template <int kOutputs, int kRows>
HWY_INLINE void DirectTile(const Mxfp4Task& task, int64_t first) {
  const DF d;
  const Mxfp4View& w = *task.weight;
  VF sum[kOutputs][kRows];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::Zero(d);
  }
  VF span[kOutputs][kRows];
  VF scale[kOutputs];
  Words words[4][kOutputs];
  int64_t c = 0;
  for (; c + kBlockColumns <= w.cols; c += kBlockColumns) {
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const uint8_t* packed = w.packed_row(first + n) + c / 2;
      // The same block of the next tile's rows: rows are too short for the hardware's prefetcher. Doubles the rate.
      DFIN_UNROLL
      for (int64_t line = 0; line < kBlockColumns / 2; line += 64) {
        __builtin_prefetch(packed + kOutputs * (w.cols / 2) + line);
      }
      const Block block = LoadBlock(packed, w.scale_row(first + n) + c / kMxfp4Group);
      scale[n] = block.scale;
      DFIN_UNROLL
      for (int q = 0; q < 4; ++q) words[q][n] = block.words[q];
    }
    const float* x = task.x + c;
    AccumulateWords<true>(words[0], x, task.x_stride, span);
    AccumulateWords<false>(words[1], x + kWord * kLanes, task.x_stride, span);
    AddScaled(scale, span, sum);
    AccumulateWords<true>(words[2], x + 2 * kWord * kLanes, task.x_stride, span);
    AccumulateWords<false>(words[3], x + 3 * kWord * kLanes, task.x_stride, span);
    AddScaled(scale, span, sum);
  }
  for (; c < w.cols; c += kTailColumns) {
    const int64_t groups = std::min(kSubBlocks, (w.cols - c) / kMxfp4Group);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const TailStep step = LoadTail(w.packed_row(first + n) + c / 2, w.scale_row(first + n) + c / kMxfp4Group, groups);
      scale[n] = step.scale;
      words[0][n] = step.words;
    }
    AccumulateWords<true>(words[0], task.x + c, task.x_stride, span);
    AddScaled(scale, span, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kOutputs; ++n) OutRow(task, r)[first + n] = SumLanes(sum[n][r]);
  }
}

template <int kRows>
void Direct(const Mxfp4Task& task, int64_t begin, int64_t end) {
  constexpr int kOutputs = kRows == 1 ? 4 : 2;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) DirectTile<kOutputs, kRows>(task, n);
  for (; n < end; ++n) DirectTile<1, kRows>(task, n);
}

template <int kColumn = 0>
HWY_INLINE void StoreWords(const Words& words, float* panel) {
  hn::Store(DecodeColumn<kColumn>(words), DF(), panel + kColumn * kLanes);
  if constexpr (kColumn + 1 < kWord) StoreWords<kColumn + 1>(words, panel);
}

// One span of `vectors` columns: panel [kOutputs, kBlockVectors], sums [rows, kPanelOutputs], scales [kOutputs].
template <int kOutputs, int kRows, int kVectors>
HWY_INLINE void PanelSpan(const float* panel, const float* scales, const float* x, int64_t x_stride, float* sums) {
  const DF d;
  VF span[kOutputs][kRows];
  const auto step = [&](int64_t i, auto first) HWY_ATTR {
    VF xs[kRows];
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) xs[r] = hn::Load(d, x + r * x_stride + i * kLanes);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const VF w = hn::Load(d, panel + (n * kBlockVectors + i) * kLanes);
      DFIN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        span[n][r] = decltype(first)::value ? hn::Mul(w, xs[r]) : hn::MulAdd(w, xs[r], span[n][r]);
      }
    }
  };
  step(0, std::true_type());
  for (int64_t i = 1; i < kVectors; ++i) step(i, std::false_type());
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    const VF scale = hn::Load(d, scales + n * kLanes);
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums + (r * kPanelOutputs + n) * kLanes;
      hn::Store(hn::MulAdd(scale, span[n][r], hn::Load(d, sum)), d, sum);
    }
  }
}

template <int kOutputs, int kRows>
HWY_INLINE void PanelTile(const float* panel, const float* scales, bool is_block, const float* x, int64_t x_stride,
                          float* sums) {
  if (HWY_LIKELY(is_block)) {
    constexpr int kHalf = kBlockVectors / 2;
    PanelSpan<kOutputs, kRows, kHalf>(panel, scales, x, x_stride, sums);
    PanelSpan<kOutputs, kRows, kHalf>(panel + kHalf * kLanes, scales, x + kHalf * kLanes, x_stride, sums);
  } else {
    PanelSpan<kOutputs, kRows, kWord>(panel, scales, x, x_stride, sums);
  }
}

// Decodes one block or tail step of one output.
HWY_INLINE void DecodePanelRow(const Mxfp4View& w, int64_t n, int64_t c, bool is_block, float* panel, float* scale) {
  const DF d;
  const uint8_t* packed = w.packed_row(n) + c / 2;
  const uint8_t* scales = w.scale_row(n) + c / kMxfp4Group;
  if (HWY_LIKELY(is_block)) {
    const Block block = LoadBlock(packed, scales);
    for (int q = 0; q < 4; ++q) StoreWords(block.words[q], panel + q * kWord * kLanes);
    hn::Store(block.scale, d, scale);
  } else {
    const TailStep step = LoadTail(packed, scales, std::min(kSubBlocks, (w.cols - c) / kMxfp4Group));
    StoreWords(step.words, panel);
    hn::Store(step.scale, d, scale);
  }
}

// Many rows: a panel of outputs is decoded into L1, then used by tiles of rows.
template <int kOutputs>
void Panel(const Mxfp4Task& task, int64_t first, float* scratch) {
  const DF d;
  const Mxfp4View& w = *task.weight;
  float* panel = scratch;
  float* scales = panel + kPanelOutputs * kBlockVectors * kLanes;
  float* sums = scales + kPanelOutputs * kLanes;
  std::memset(sums, 0, static_cast<size_t>(task.rows * kPanelOutputs * kLanes) * sizeof(float));
  for (int64_t c = 0; c < w.cols;) {
    const bool is_block = c + kBlockColumns <= w.cols;
    for (int n = 0; n < kOutputs; ++n) {
      DecodePanelRow(w, first + n, c, is_block, panel + n * kBlockVectors * kLanes, scales + n * kLanes);
    }
    const float* x = task.x + c;
    int64_t r = 0;
    for (; r + kPanelRows <= task.rows; r += kPanelRows) {
      PanelTile<kOutputs, kPanelRows>(panel, scales, is_block, x + r * task.x_stride, task.x_stride,
                                      sums + r * kPanelOutputs * kLanes);
    }
    for (; r < task.rows; ++r) {
      PanelTile<kOutputs, 1>(panel, scales, is_block, x + r * task.x_stride, task.x_stride,
                             sums + r * kPanelOutputs * kLanes);
    }
    c += is_block ? kBlockColumns : kTailColumns;
  }
  for (int64_t r = 0; r < task.rows; ++r) {
    for (int n = 0; n < kOutputs; ++n) {
      OutRow(task, r)[first + n] = SumLanes(hn::Load(d, sums + (r * kPanelOutputs + n) * kLanes));
    }
  }
}

void Mxfp4(const Mxfp4Task& task, int64_t begin, int64_t end, float* scratch) {
  switch (task.rows) {
    case 0:
      return;
    case 1:
      return Direct<1>(task, begin, end);
    case 2:
      return Direct<2>(task, begin, end);
    case 3:
      return Direct<3>(task, begin, end);
    case 4:
      return Direct<4>(task, begin, end);
    default:
      break;
  }
  int64_t n = begin;
  for (; n + kPanelOutputs <= end; n += kPanelOutputs) Panel<kPanelOutputs>(task, n, scratch);
  for (; n < end; ++n) Panel<1>(task, n, scratch);
}

void FillMxfp4Target(CpuKernels& kernels) {
  kernels.group_columns = GroupColumns;
  kernels.mxfp4 = Mxfp4;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

void FillMxfp4(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillMxfp4Target, kernels); }

}  // namespace deltafin::cpu
#endif
