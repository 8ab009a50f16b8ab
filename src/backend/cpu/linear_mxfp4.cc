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

#include "backend/cpu/row_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kSubBlocks = kLanes / 4;                  // 128-bit blocks of a vector
constexpr int64_t kBlockColumns = kLanes * kMxfp4Group;     // columns of a block
constexpr int64_t kTailColumns = kSubBlocks * kMxfp4Group;  // columns of a tail step
constexpr int64_t kStripOutputs = 32;                       // that share a visit of the input
constexpr int64_t kWord = 8;                                // columns of a 32-bit word

using DU8 = hn::Rebind<uint8_t, DF>;  // kLanes bytes

// Group of a block that lane l works on after the transposition.
constexpr int64_t GroupOfLane(int64_t l) { return kSubBlocks * (l % 4) + l / 4; }

void GroupColumns(const float* x, int64_t columns, int64_t row, int64_t rows, float* prepared) {
  const TileRow row_of_tile(prepared, columns, row, rows);
  const auto vector = [&](int64_t c, int64_t i) { return row_of_tile.vector(c / kLanes + i); };
  int64_t c = 0;
  for (; c + kBlockColumns <= columns; c += kBlockColumns) {
    for (int64_t i = 0; i < kMxfp4Group; ++i) {
      float* to = vector(c, i);
      for (int64_t l = 0; l < kLanes; ++l) to[l] = x[c + GroupOfLane(l) * kMxfp4Group + i];
    }
  }
  for (; c < columns; c += kTailColumns) {
    for (int64_t i = 0; i < kWord; ++i) {
      float* to = vector(c, i);
      for (int64_t l = 0; l < kLanes; ++l) {
        const int64_t word = c + l * kWord;
        to[l] = word < columns ? x[word + i] : 0.0f;
      }
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

// A word whose columns were decoded before: what strips hold where decoding takes more than a shift and a permutation.
struct DecodedWord {
  const float* columns;  // [kWord] vectors
};
template <int kColumn>
HWY_INLINE VF DecodeColumn(const DecodedWord& word) {
  return hn::Load(DF(), word.columns + kColumn * kLanes);
}

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
HWY_INLINE void Accumulate(const VF (&w)[kOutputs], const float* x, VF (&span)[kOutputs][kRows]) {
  const DF d;
  DFIN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    VF xs = hn::Load(d, x + r * kLanes);
    DFIN_KEEP_IN_REGISTER(xs.raw);
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

template <int kColumn, bool kFirst, typename Word, int kOutputs, int kRows>
HWY_INLINE void DecodeAndAccumulate(const Word (&words)[kOutputs], const float* x, VF (&span)[kOutputs][kRows]) {
  VF w[kOutputs];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) w[n] = DecodeColumn<kColumn>(words[n]);
  Accumulate<kOutputs, kRows, kFirst>(w, x + kColumn * kRows * kLanes, span);
}

// The eight columns of a word.
template <bool kFirst, typename Word, int kOutputs, int kRows>
HWY_INLINE void AccumulateWords(const Word (&words)[kOutputs], const float* x, VF (&span)[kOutputs][kRows]) {
  DecodeAndAccumulate<0, kFirst>(words, x, span);
  DecodeAndAccumulate<1, false>(words, x, span);
  DecodeAndAccumulate<2, false>(words, x, span);
  DecodeAndAccumulate<3, false>(words, x, span);
  DecodeAndAccumulate<4, false>(words, x, span);
  DecodeAndAccumulate<5, false>(words, x, span);
  DecodeAndAccumulate<6, false>(words, x, span);
  DecodeAndAccumulate<7, false>(words, x, span);
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
        __builtin_prefetch(packed + kOutputs * (w.cols / 2) + line, 0, kAskL2);
      }
      const Block block = LoadBlock(packed, w.scale_row(first + n) + c / kMxfp4Group);
      scale[n] = block.scale;
      DFIN_UNROLL
      for (int q = 0; q < 4; ++q) words[q][n] = block.words[q];
    }
    const float* x = task.x + c * kRows;
    AccumulateWords<true>(words[0], x, span);
    AccumulateWords<false>(words[1], x + kWord * kRows * kLanes, span);
    AddScaled(scale, span, sum);
    AccumulateWords<true>(words[2], x + 2 * kWord * kRows * kLanes, span);
    AccumulateWords<false>(words[3], x + 3 * kWord * kRows * kLanes, span);
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
    AccumulateWords<true>(words[0], task.x + c * kRows, span);
    AddScaled(scale, span, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kOutputs; ++n) OutRow(task, r)[first + n] = SumLanes(sum[n][r]);
  }
}

template <int kRows>
void Direct(const Mxfp4Task& task, int64_t begin, int64_t end) {
  constexpr int kOutputs = 4;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) DirectTile<kOutputs, kRows>(task, n);
  for (; n < end; ++n) DirectTile<1, kRows>(task, n);
}

template <int kColumn = 0>
HWY_INLINE void StoreColumns(const Words& words, float* columns) {
  hn::Store(DecodeColumn<kColumn>(words), DF(), columns + kColumn * kLanes);
  if constexpr (kColumn + 1 < kWord) StoreColumns<kColumn + 1>(words, columns);
}

// A strip of outputs, one block of columns at a time: its weights are transposed once for all tiles of rows, and, where
// that is dear, decoded.
struct StripMemory {
#if HWY_TARGET == HWY_AVX3
  using Word = Words;
  static constexpr int64_t kWordFloats = kLanes;
  Word word(int64_t n, int64_t q) const { return {hn::Load(DU(), reinterpret_cast<const uint32_t*>(At(n, q)))}; }
  void SetWord(int64_t n, int64_t q, const Words& w) const {
    hn::Store(w.bits, DU(), reinterpret_cast<uint32_t*>(At(n, q)));
  }
#else
  using Word = DecodedWord;
  static constexpr int64_t kWordFloats = kWord * kLanes;
  Word word(int64_t n, int64_t q) const { return {At(n, q)}; }
  void SetWord(int64_t n, int64_t q, const Words& w) const { StoreColumns(w, At(n, q)); }
#endif
  explicit StripMemory(float* scratch)
      : words(scratch), scales(words + kStripOutputs * 4 * kWordFloats), sums(scales + kStripOutputs * kLanes) {}

  float* At(int64_t n, int64_t q) const { return words + (n * 4 + q) * kWordFloats; }
  VF scale(int64_t n) const { return hn::Load(DF(), scales + n * kLanes); }
  float* sum(int64_t n, int64_t r) const { return sums + (r * kStripOutputs + n) * kLanes; }

  float* words;   // [kStripOutputs, 4]
  float* scales;  // [kStripOutputs]
  float* sums;    // [rows, kStripOutputs]
};

// Words [first_word, first_word + kWords) of kOutputs outputs on kRows rows: one span, added to the sums, which begin
// with the first.
template <int kOutputs, int kRows, int kWords>
HWY_INLINE void StripSpan(const StripMemory& strip, int64_t n, int64_t first_word, const float* x, int64_t r,
                          bool is_first) {
  const DF d;
  VF span[kOutputs][kRows];
  StripMemory::Word words[kOutputs];
  x += first_word * kWord * kRows * kLanes;
  DFIN_KEEP_POINTER(x);
  DFIN_UNROLL
  for (int i = 0; i < kOutputs; ++i) words[i] = strip.word(n + i, first_word);
  AccumulateWords<true>(words, x, span);
  if constexpr (kWords == 2) {
    DFIN_UNROLL
    for (int i = 0; i < kOutputs; ++i) words[i] = strip.word(n + i, first_word + 1);
    AccumulateWords<false>(words, x + kWord * kRows * kLanes, span);
  }
  DFIN_UNROLL
  for (int i = 0; i < kOutputs; ++i) {
    const VF scale = strip.scale(n + i);
    DFIN_UNROLL
    for (int k = 0; k < kRows; ++k) {
      float* sum = strip.sum(n + i, r + k);
      const VF before = is_first ? hn::Zero(d) : hn::Load(d, sum);
      hn::Store(hn::MulAdd(scale, span[i][k], before), d, sum);
    }
  }
}

// The block that a strip needs next: the same outputs' next columns, or the next strip's first ones. Tiles of rows
// share the asking, or the reads would come all at once and then none.
struct NextBlock {
  HWY_INLINE void Ask(int64_t n) const {
    if (n < begin || n >= end) return;
    const uint8_t* at = packed + n * packed_stride;
    DFIN_UNROLL
    for (int64_t line = 0; line < kBlockColumns / 2; line += 64) __builtin_prefetch(at + line, 0, kAskL2);
    __builtin_prefetch(scales + n * scale_stride, 0, kAskL2);
  }

  const uint8_t* packed;
  const uint8_t* scales;
  int64_t packed_stride, scale_stride;
  int64_t begin = 0, end = 0;  // outputs to ask for
};

// Rows [r, r + kRows) on all outputs of the strip; x is the tile's first vector of the block.
template <int kRows>
HWY_NOINLINE void StripTile(const StripMemory& strip, int64_t outputs, bool is_block, const NextBlock& next,
                            const float* x, int64_t r, bool is_first) {
  int64_t n = 0;
  for (; n + 2 <= outputs; n += 2) {
    next.Ask(n);
    next.Ask(n + 1);
    if (HWY_LIKELY(is_block)) {
      StripSpan<2, kRows, 2>(strip, n, 0, x, r, is_first);
      StripSpan<2, kRows, 2>(strip, n, 2, x, r, false);
    } else {
      StripSpan<2, kRows, 1>(strip, n, 0, x, r, is_first);
    }
  }
  if (n == outputs) return;
  if (is_block) {
    StripSpan<1, kRows, 2>(strip, n, 0, x, r, is_first);
    StripSpan<1, kRows, 2>(strip, n, 2, x, r, false);
  } else {
    StripSpan<1, kRows, 1>(strip, n, 0, x, r, is_first);
  }
}

template <int kRows>
HWY_INLINE void StripRows(int64_t rows, const StripMemory& strip, int64_t outputs, bool is_block, const NextBlock& next,
                          const float* x, int64_t r, bool is_first) {
  if (rows == kRows) return StripTile<kRows>(strip, outputs, is_block, next, x, r, is_first);
  if constexpr (kRows > 1) StripRows<kRows - 1>(rows, strip, outputs, is_block, next, x, r, is_first);
}

HWY_INLINE void TransposeStrip(const Mxfp4View& w, int64_t first, int64_t outputs, int64_t c, bool is_block,
                               const StripMemory& strip) {
  const DF d;
  for (int64_t n = 0; n < outputs; ++n) {
    const uint8_t* packed = w.packed_row(first + n) + c / 2;
    const uint8_t* scales = w.scale_row(first + n) + c / kMxfp4Group;
    if (HWY_LIKELY(is_block)) {
      const Block block = LoadBlock(packed, scales);
      for (int q = 0; q < 4; ++q) strip.SetWord(n, q, block.words[q]);
      hn::Store(block.scale, d, strip.scales + n * kLanes);
    } else {
      const TailStep step = LoadTail(packed, scales, std::min(kSubBlocks, (w.cols - c) / kMxfp4Group));
      strip.SetWord(n, 0, step.words);
      hn::Store(step.scale, d, strip.scales + n * kLanes);
    }
  }
}

void Strip(const Mxfp4Task& task, int64_t first, int64_t outputs, float* scratch) {
  const Mxfp4View& w = *task.weight;
  const StripMemory strip(scratch);
  const RowTiles tiles(task.rows, kTileRows);
  for (int64_t c = 0; c < w.cols;) {
    const bool is_block = c + kBlockColumns <= w.cols;
    TransposeStrip(w, first, outputs, c, is_block, strip);
    const int64_t following = c + (is_block ? kBlockColumns : kTailColumns);
    const int64_t row = following < w.cols ? first : first + outputs, column = following < w.cols ? following : 0;
    NextBlock next{w.packed_row(row) + column / 2, w.scale_row(row) + column / kMxfp4Group, w.cols / 2,
                   w.cols / kMxfp4Group};
    for (int64_t t = 0; t < tiles.count; ++t) {
      const int64_t r = tiles.First(t), rows = tiles.First(t + 1) - r;
      next.begin = outputs * t / tiles.count;
      next.end = outputs * (t + 1) / tiles.count;
      StripRows<kTileRows>(rows, strip, outputs, is_block, next, task.x + r * PadColumns(w.cols) + c * rows, r, c == 0);
    }
    c = following;
  }
  for (int64_t r = 0; r < task.rows; ++r) StoreLaneSums(strip.sum(0, r), 1, outputs, OutRow(task, r) + first);
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
    default:
      break;
  }
  for (int64_t n = begin; n < end; n += kStripOutputs) Strip(task, n, std::min(kStripOutputs, end - n), scratch);
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
