// Linear with weights in the 12-bit form (tensor/bf12.h).
//
// Bit-identical to linear_bf16.cc of the same instruction set: the input is prepared by the same split_columns, and one
// (row, output) accumulates the same products in the same order: blocks of 2 * lanes columns, the even ones of a block,
// then the odd ones, one vector accumulator, then the lane sum. Few rows: groups of 128 columns are decoded in
// registers; groups with an escape in one of the tile's outputs, whole rows and the columns of the last, partial group
// are decoded through a small buffer, where the escapes are put in. Many rows: a strip's span of columns is decoded
// once for all tiles of rows (linear_tiles-inl.h). The matrix has passed CheckBf12(), so no row or escape lies outside
// of it.
#include <algorithm>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"
#include "tensor/bf12.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_bf12.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/linear_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {
namespace {

using DB = hn::ScalableTag<uint8_t>;
using VB = hn::Vec<DB>;

constexpr int64_t kBytes = 4 * kLanes;  // of a vector
constexpr int kParts = static_cast<int>(kBf12Half / kBytes);
constexpr int kHalfBlocks = 2 * kParts;
// How far ahead of its reads a row's bytes are asked for, as in linear_bf16.cc.
constexpr int64_t kPrefetchBytes = 2048;

HWY_INLINE VF Even(VU block) { return hn::BitCast(DF(), hn::ShiftLeft<16>(block)); }
HWY_INLINE VF Odd(VU block) { return hn::BitCast(DF(), hn::And(block, hn::Set(DU(), 0xffff0000u))); }

// The 64 columns of a half group as blocks of BF16 values in order.
template <int kHalf>
HWY_INLINE void DecodeHalf(const uint8_t* group, VB table, VU (&blocks)[kHalfBlocks]) {
  const DB d;
  DFIN_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const VB low = hn::LoadU(d, group + kHalf * kBf12Half + p * kBytes);
    const VB codes = hn::LoadU(d, group + kBf12Group + p * kBytes);
    const VB index = kHalf == 0 ? hn::And(codes, hn::Set(d, 15)) : hn::ShiftRight<4>(codes);
    const VB high = hn::TableLookupBytes(table, index);
    blocks[p] = hn::BitCast(DU(), hn::InterleaveLower(d, low, high));
    blocks[kParts + p] = hn::BitCast(DU(), hn::InterleaveUpper(d, low, high));
  }
}

template <int kHalf>
HWY_INLINE void StoreHalf(const uint8_t* group, VB table, float* to) {
  const DF d;
  VU blocks[kHalfBlocks];
  DecodeHalf<kHalf>(group, table, blocks);
  DFIN_UNROLL
  for (int b = 0; b < kHalfBlocks; ++b) {
    hn::StoreU(Even(blocks[b]), d, to + kHalf * kBf12Half + b * kPair);
    hn::StoreU(Odd(blocks[b]), d, to + kHalf * kBf12Half + b * kPair + kLanes);
  }
}

// BF16 values, the last block padded with zeros.
HWY_INLINE void StoreBf16(const uint16_t* from, int64_t width, float* to) {
  const DF d;
  for (int64_t c = 0; c < width; c += kPair) {
    HWY_ALIGN uint16_t padded[kPair] = {};
    const uint16_t* at = from + c;
    if (c + kPair > width) {
      std::memcpy(padded, at, static_cast<size_t>(width - c) * sizeof(uint16_t));
      at = padded;
    }
    const VU block = hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(at));
    hn::StoreU(Even(block), d, to + c);
    hn::StoreU(Odd(block), d, to + c + kLanes);
  }
}

// The last `columns` (< 128) columns of a packed row.
HWY_INLINE void StoreTail(const uint8_t* low, int64_t columns, const uint8_t* table, float* to) {
  const uint8_t* codes = low + columns;
  HWY_ALIGN uint16_t values[kBf12Group];
  for (int64_t c = 0; c < columns; ++c) {
    const int code = c % 2 == 0 ? codes[c / 2] & 15 : codes[c / 2] >> 4;
    values[c] = static_cast<uint16_t>(table[code] << 8 | low[c]);
  }
  StoreBf16(values, columns, to);
}

// Decodes columns [c, c + width) of a row, c a multiple of 128; width is another or reaches to the row's end. Blocks
// lie as split_columns has the input: even columns, then odd ones. Returns the width padded to whole blocks.
HWY_NOINLINE int64_t DecodeColumns(const Bf12Row& row, int64_t columns, int64_t c, int64_t width, float* to) {
  const int64_t end = c + width, padded = (width + kPair - 1) / kPair * kPair;
  if (row.is_whole) {
    StoreBf16(row.whole() + c, width, to);
    return padded;
  }
  const VB table = hn::LoadDup128(DB(), row.table);
  for (int64_t at = c; at < end; at += kBf12Group) {
    const uint8_t* group = row.data + at / kBf12Group * kBf12GroupBytes;
    // The same columns of a span that comes next, wanted once all rows of the input have used this one.
    for (int64_t line = 0; line < 3; ++line)
      __builtin_prefetch(group + kSpanColumns / kBf12Group * kBf12GroupBytes + line * 64, 0, kAskL2);
    if (at + kBf12Group > columns) {
      StoreTail(group, columns - at, row.table, to + (at - c));
    } else {
      StoreHalf<0>(group, table, to + (at - c));
      StoreHalf<1>(group, table, to + (at - c));
    }
  }
  const auto first = std::lower_bound(row.escapes.begin(), row.escapes.end(), static_cast<uint32_t>(c) << 8);
  for (auto escape = first; escape != row.escapes.end() && Bf12EscapeColumn(*escape) < end; ++escape) {
    const int64_t column = Bf12EscapeColumn(*escape) - c, i = column % kPair;
    float* value = to + (column - i) + i / 2 + i % 2 * kLanes;
    uint32_t bits;
    std::memcpy(&bits, value, sizeof bits);
    bits = (bits & 0x00ff0000u) | static_cast<uint32_t>(Bf12EscapeByte(*escape)) << 24;
    std::memcpy(value, &bits, sizeof bits);
  }
  return padded;
}

// One row of the matrix on its way through a tile.
struct RowCursor {
  RowCursor() = default;
  explicit RowCursor(const Bf12Row& row) : row(row), next(row.escapes.data()), end(next + row.escapes.size()) {}

  // The start of the first group at or after column c that needs the buffer; `full` when there is none.
  int64_t StopAfter(int64_t c, int64_t full) {
    if (row.is_whole) return c;
    while (next != end && Bf12EscapeColumn(*next) < c) ++next;
    return next == end ? full : std::min(full, Bf12EscapeColumn(*next) / kBf12Group * kBf12Group);
  }

  Bf12Row row;
  const uint32_t* next = nullptr;
  const uint32_t* end = nullptr;
};

// One half group of one output into its sums.
template <int kHalf, int kRows>
HWY_INLINE void AddHalf(const uint8_t* group, VB table, const float* x, VF (&sum)[kRows]) {
  const DF d;
  VU blocks[kHalfBlocks];
  DecodeHalf<kHalf>(group, table, blocks);
  DFIN_UNROLL
  for (int b = 0; b < kHalfBlocks; ++b) {
    const VF even = Even(blocks[b]), odd = Odd(blocks[b]);
    const float* at = x + (kHalf * kBf12Half + b * kPair) * kRows;
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(even, hn::Load(d, at + r * kLanes), sum[r]);
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::MulAdd(odd, hn::Load(d, at + (kRows + r) * kLanes), sum[r]);
  }
}

// kOutputs x kRows sums, weights decoded in registers.
template <int kOutputs, int kRows>
HWY_INLINE void Bf12Tile(const Bf12View& matrix, const LinearTask& task, int64_t first) {
  const DF d;
  const int64_t columns = matrix.columns(), full = columns / kBf12Group * kBf12Group;
  const uint8_t* data[kOutputs];
  VB table[kOutputs];
  VF sum[kOutputs][kRows];
  RowCursor cursors[kOutputs];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    const Bf12Row row = matrix.Row(first + n);
    cursors[n] = RowCursor(row);
    data[n] = row.data;
    table[n] = hn::LoadDup128(DB(), row.table);
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::Zero(d);
  }
  for (int64_t c = 0; c < columns;) {
    int64_t stop = full;
    for (int n = 0; n < kOutputs; ++n) stop = std::min(stop, cursors[n].StopAfter(c, full));
    for (; c < stop; c += kBf12Group) {
      const int64_t at = c / kBf12Group * kBf12GroupBytes;
      const float* x = task.x + c * kRows;
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        const uint8_t* group = data[n] + at;
        DFIN_UNROLL
        for (int line = 0; line < 3; ++line) __builtin_prefetch(group + kPrefetchBytes + line * 64, 0, kAskL2);
        AddHalf<0>(group, table[n], x, sum[n]);
        AddHalf<1>(group, table[n], x, sum[n]);
      }
    }
    if (c >= columns) break;
    HWY_ALIGN float buffer[kOutputs * kBf12Group];
    const int64_t width = std::min(kBf12Group, columns - c);
    int64_t padded = 0;
    for (int n = 0; n < kOutputs; ++n)
      padded = DecodeColumns(cursors[n].row, columns, c, width, buffer + n * kBf12Group);
    for (int64_t i = 0; i < padded; i += kLanes) {
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        const VF w = hn::Load(d, buffer + n * kBf12Group + i);
        DFIN_UNROLL
        for (int r = 0; r < kRows; ++r)
          sum[n][r] = hn::MulAdd(w, hn::Load(d, task.x + (c + i) * kRows + r * kLanes), sum[n][r]);
      }
    }
    c += width;
  }
  DFIN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) task.out.row(r)[first + n] = SumLanes(sum[n][r]);
  }
}

template <int kRows>
void Bf12FewRows(const Bf12View& matrix, const LinearTask& task, int64_t begin, int64_t end) {
  constexpr int kOutputs = kRows <= 2 || kLanes != 8 ? 4 : 2;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) Bf12Tile<kOutputs, kRows>(matrix, task, n);
  for (; n < end; ++n) Bf12Tile<1, kRows>(matrix, task, n);
}

// A strip's span of columns, decoded: rows of kSpanColumns.
struct DecodedSpan {
  struct Row {
    HWY_INLINE void Load(int64_t c, VF& even, VF& odd) const {
      even = hn::Load(DF(), w + (c - begin));
      odd = hn::Load(DF(), w + (c - begin) + kLanes);
    }
    HWY_INLINE void LoadPartial(int64_t c, int64_t, VF& even, VF& odd) const { Load(c, even, odd); }
    HWY_INLINE void Ask(int64_t) const {}  // DecodeColumns has asked

    const float* w;
    int64_t begin;
  };
  HWY_INLINE Row At(int64_t n) const { return {values + (n - first) * kSpanColumns, begin}; }

  const float* values;
  int64_t first, begin;
};

struct Bf12Weights {
  DecodedSpan Span(int64_t first, int64_t outputs, int64_t begin, int64_t end, float* scratch) const {
    for (int64_t n = 0; n < outputs; ++n) {
      DecodeColumns(matrix.Row(first + n), matrix.columns(), begin, end - begin, scratch + n * kSpanColumns);
    }
    return {scratch, first, begin};
  }

  const Bf12View& matrix;
};

void LinearBf12(const LinearTask& task, int64_t begin, int64_t end, float* scratch) {
  const Bf12View matrix = Bf12View(*task.weight).From(task.first);
  switch (task.rows) {
    case 0:
      return;
    case 1:
      return Bf12FewRows<1>(matrix, task, begin, end);
    case 2:
      return Bf12FewRows<2>(matrix, task, begin, end);
    case 3:
      return Bf12FewRows<3>(matrix, task, begin, end);
    case kFewRows:
      return Bf12FewRows<kFewRows>(matrix, task, begin, end);
    default:
      break;
  }
  for (int64_t n = begin; n < end; n += kStripOutputs) {
    Strip(Bf12Weights{matrix}, task, matrix.columns(), n, std::min(kStripOutputs, end - n), scratch);
  }
}

}  // namespace

void FillLinearBf12Target(CpuKernels& kernels) { kernels.linear_bf12 = LinearBf12; }

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

// Behind the sums of a strip, 64 outputs of 512 decoded columns.
int64_t Bf12ScratchFloats() { return kMatrixRows * 64 * 16 + 64 * 512; }

void FillLinearBf12(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillLinearBf12Target, kernels); }

}  // namespace deltafin::cpu
#endif
