// Linear with MXFP4 weights on processors with AVX-512 VNNI: sums of a group are exact, in integers.
//
// A group's 32 inputs are held as integers of one step: x = q * step, step a power of two such that the largest of them
// has 22 bits (|q| <= 2^22). So an input is off by at most 2^-22 of the largest in its group, once; after that nothing
// is rounded until a group's sum is complete, where float32 rounds every product's addition. q is three signed bytes,
// q = (q2 * 256 + q1) * 256 + q0, and a weight, which is half a small integer, an unsigned byte 2 w + 12: one
// instruction multiplies 64 of them and adds them four by four. The 12s add 12 * (sum of the group's q) to every
// output, which is taken away again (`correction`). |sum of 2 w q| <= 32 * 12 * 2^22 < 2^31: intermediate sums may
// wrap around, the result does not. Then sum += (2 w q) * step * (scale / 2), groups of a lane in order, then the lane
// sum: a row's bits do not depend on how many rows there are, since integers do not care in which order they are added.
//
// A block is 16 groups, a group a lane; what is left goes in steps of four groups, where a lane has one 32-bit word (8
// columns). Column vectors: vector 2 j + p of a block holds columns 8 j + p + {0, 2, 4, 6} of each lane's group, which
// are the low (p = 0) or high (p = 1) nibbles of word j. Inputs that are not finite make their row's outputs NaN.
#include "backend/cpu/cpu_kernels.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in gcc 12's own header (its bug 105593)
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/highway_targets.h"  // DFIN_UNROLL, DFIN_KEEP_IN_REGISTER
#include "backend/cpu/row_tiles.h"

#define DFIN_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni")))
#define DFIN_VNNI_INLINE __attribute__((always_inline)) inline DFIN_VNNI

namespace deltafin::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kBlockColumns = kLanes * kMxfp4Group;  // 512
constexpr int64_t kTailGroups = 4;
constexpr int64_t kTailColumns = kTailGroups * kMxfp4Group;
constexpr int kLimbs = 3;
constexpr int kBlockVectors = 8, kTailVectors = 2;  // of columns, in a block and in a tail step
// Rows of a tile, and its outputs: their sums, weights and an input fit into 32 registers.
constexpr int64_t MostTileRows(int64_t rows) { return rows == 5 ? 5 : 4; }
constexpr int TileOutputs(int64_t height) { return height <= 4 ? 4 : 3; }
constexpr int64_t kStripOutputs = 24;  // a multiple of either
constexpr int kInputBits = 22;
// How far ahead of its reads a row is asked for.
constexpr int64_t kAheadBytes = 8192;

// Vectors of prepared input: limb 2 first, then limb 1, limb 0, the correction, the step.
constexpr int64_t InputVectors(int columns) { return kLimbs * columns + 2; }
static_assert(InputVectors(kBlockVectors) * kVectorBytes <= kBlockColumns * 4, "fits where float32 inputs would");
static_assert(InputVectors(kTailVectors) * kVectorBytes <= kTailColumns * 4, "fits where float32 inputs would");

// The first vector of a row of `height` in its tile at a column; blocks come before tail steps.
constexpr int64_t InputOffset(int64_t columns, int64_t c) {
  const int64_t blocks = std::min(c, columns / kBlockColumns * kBlockColumns) / kBlockColumns;
  return blocks * InputVectors(kBlockVectors) +
         (c - blocks * kBlockColumns) / kTailColumns * InputVectors(kTailVectors);
}

// Group that lane l of a block has after TransposeWords().
constexpr int64_t GroupOfLane(int64_t l) { return 4 * (l % 4) + l / 4; }
constexpr int64_t LaneOfGroup(int64_t g) { return 4 * (g % 4) + g / 4; }
static_assert(GroupOfLane(LaneOfGroup(7)) == 7);

// One group's inputs as integers: limbs[i][j] are the four bytes of column vector j, limb 2 first.
struct GroupInput {
  uint32_t limbs[kLimbs][kBlockVectors];
  int32_t sums[4];  // of q, by word
  float step;
};

DFIN_VNNI_INLINE GroupInput QuantizeGroup(__m512 low, __m512 high) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i both = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                        _mm512_and_si512(_mm512_castps_si512(high), magnitude));
  const uint32_t largest = _mm512_reduce_max_epu32(both);
  GroupInput out;
  if (largest >= 0x7f800000u) {
    std::memset(&out, 0, sizeof(out));
    out.step = __builtin_nanf("");
    return out;
  }
  // The largest input is below 2^(exponent + 1).
  const int exponent =
      largest >= 0x00800000u ? static_cast<int>(largest >> 23) - 127 : 31 - __builtin_clz(largest | 1) - 149;
  const int step = std::max(exponent + 1 - kInputBits, -149);
  const __m512 shift = _mm512_set1_ps(static_cast<float>(-step));
  __m512i q[2] = {_mm512_cvtps_epi32(_mm512_scalef_ps(low, shift)), _mm512_cvtps_epi32(_mm512_scalef_ps(high, shift))};
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  alignas(64) int32_t values[kMxfp4Group];
  for (int h = 0; h < 2; ++h) {
    _mm512_store_si512(values + h * 16, q[h]);
    for (int limb = kLimbs - 1; limb >= 0; --limb) {  // q0 first: what is left after it is divisible by 256
      const __m128i bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(q[h]), order);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&out.limbs[limb][h * 4]), bytes);
      q[h] = _mm512_srai_epi32(_mm512_add_epi32(q[h], _mm512_set1_epi32(128)), 8);
    }
  }
  for (int j = 0; j < 4; ++j) {
    out.sums[j] = 0;
    for (int c = 0; c < 8; ++c) out.sums[j] += values[8 * j + c];
  }
  out.step = _mm512_cvtss_f32(_mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_set1_ps(static_cast<float>(step))));
  return out;
}

// Where one row's input vectors are written: vector v, lane l, as 32-bit words.
struct RowOfTile {
  RowOfTile(float* prepared, int64_t columns, int64_t row, int64_t rows) {
    const RowTiles tiles(rows, MostTileRows(rows));
    const int64_t t = tiles.TileOf(row);
    height = tiles.Height(t);
    first = reinterpret_cast<std::byte*>(prepared + tiles.First(t) * PadColumns(columns)) +
            (row - tiles.First(t)) * kVectorBytes;
  }
  template <typename T>
  void Set(int64_t vector, int64_t lane, T value) const {
    static_assert(sizeof(T) == 4);
    std::memcpy(first + vector * height * kVectorBytes + lane * 4, &value, 4);
  }

  std::byte* first;
  int64_t height;
};

DFIN_VNNI void GroupColumns(const float* x, int64_t columns, int64_t row, int64_t rows, float* prepared) {
  const RowOfTile to(prepared, columns, row, rows);
  int64_t c = 0;
  for (; c + kBlockColumns <= columns; c += kBlockColumns) {
    const int64_t first = InputOffset(columns, c);
    for (int64_t g = 0; g < kLanes; ++g) {
      const float* from = x + c + g * kMxfp4Group;
      const GroupInput in = QuantizeGroup(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16));
      const int64_t lane = LaneOfGroup(g);
      for (int v = 0; v < kLimbs * kBlockVectors; ++v) {
        to.Set(first + v, lane, in.limbs[v / kBlockVectors][v % kBlockVectors]);
      }
      const int32_t sum = in.sums[0] + in.sums[1] + in.sums[2] + in.sums[3];
      to.Set(first + kLimbs * kBlockVectors, lane, static_cast<int32_t>(-12u * static_cast<uint32_t>(sum)));
      to.Set(first + kLimbs * kBlockVectors + 1, lane, in.step);
    }
  }
  for (; c < columns; c += kTailColumns) {
    const int64_t first = InputOffset(columns, c);
    for (int64_t g = 0; g < kTailGroups; ++g) {
      const float* from = x + c + g * kMxfp4Group;
      const bool inside = c + g * kMxfp4Group < columns;
      const GroupInput in = inside ? QuantizeGroup(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)) : GroupInput{};
      for (int64_t j = 0; j < 4; ++j) {
        for (int v = 0; v < kLimbs * kTailVectors; ++v) {
          to.Set(first + v, g * 4 + j, in.limbs[v / kTailVectors][2 * j + v % kTailVectors]);
        }
        to.Set(first + kLimbs * kTailVectors, g * 4 + j, -12 * in.sums[j]);
        to.Set(first + kLimbs * kTailVectors + 1, g * 4 + j, in.step);
      }
    }
  }
}

// Columns of 16 words as bytes 2 w + 12: the low nibbles, and the high ones.
DFIN_VNNI_INLINE void DecodeWords(__m512i words, __m512i& even, __m512i& odd) {
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i nibble = _mm512_set1_epi8(15);
  even = _mm512_shuffle_epi8(table, _mm512_and_si512(words, nibble));
  odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi32(words, 4), nibble));
}

// Half of 2^(byte - 127), as in linear_mxfp4.cc.
DFIN_VNNI_INLINE __m512 HalfScale(__m128i bytes) {
  const __m512i bits =
      _mm512_max_epu32(_mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23), _mm512_set1_epi32(0x00400000));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0.5f));
}

// A block of one output: its column vectors, and the scales of its lanes.
DFIN_VNNI_INLINE __m512 DecodeBlock(const uint8_t* packed, const uint8_t* scales, __m512i (&w)[kBlockVectors]) {
  const __m512i v0 = _mm512_loadu_si512(packed), v1 = _mm512_loadu_si512(packed + 64);
  const __m512i v2 = _mm512_loadu_si512(packed + 128), v3 = _mm512_loadu_si512(packed + 192);
  const __m512i low01 = _mm512_unpacklo_epi32(v0, v1), high01 = _mm512_unpackhi_epi32(v0, v1);
  const __m512i low23 = _mm512_unpacklo_epi32(v2, v3), high23 = _mm512_unpackhi_epi32(v2, v3);
  DecodeWords(_mm512_unpacklo_epi64(low01, low23), w[0], w[1]);
  DecodeWords(_mm512_unpackhi_epi64(low01, low23), w[2], w[3]);
  DecodeWords(_mm512_unpacklo_epi64(high01, high23), w[4], w[5]);
  DecodeWords(_mm512_unpackhi_epi64(high01, high23), w[6], w[7]);
  const __m128i groups = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);  // GroupOfLane()
  return HalfScale(_mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)), groups));
}

// A tail step of 1 .. 4 groups; the others are zeros, as their inputs are.
DFIN_VNNI_INLINE __m512 DecodeTail(const uint8_t* packed, const uint8_t* scales, int64_t groups,
                                   __m512i (&w)[kTailVectors]) {
  const auto words = static_cast<__mmask16>((1u << (4 * groups)) - 1);
  DecodeWords(_mm512_maskz_loadu_epi32(words, packed), w[0], w[1]);
  uint32_t bytes = 0;
  std::memcpy(&bytes, scales, static_cast<size_t>(groups));
  const __m128i lanes = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return HalfScale(_mm_shuffle_epi8(_mm_cvtsi32_si128(static_cast<int>(bytes)), lanes));
}

// Sums of the lanes of four vectors, each the same bits whatever the others are.
DFIN_VNNI_INLINE __m128 SumLanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  __m512 all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  all = _mm512_add_ps(all, _mm512_shuffle_ps(all, all, 0x4e));
  all = _mm512_add_ps(all, _mm512_shuffle_ps(all, all, 0xb1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all));
}

// A complete group sum of every lane, scaled.
DFIN_VNNI_INLINE __m512 Scaled(__m512i sum, const std::byte* correction, int64_t height, __m512 scale, __m512 before) {
  const __m512i exact = _mm512_add_epi32(sum, _mm512_load_si512(correction));
  const __m512 step = _mm512_load_ps(correction + height * kVectorBytes);
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(exact), step), scale, before);
}

DFIN_VNNI_INLINE float* OutRow(const Mxfp4Task& task, int64_t r) {
  return task.out.row(task.out_rows == nullptr ? r : task.out_rows[r]);
}

// kVectors column vectors of kOutputs outputs on kRows rows, weights in registers. The three limbs' sums are kept
// apart, so that few rows have enough of them that do not wait for each other.
template <int kVectors, int kOutputs, int kRows>
DFIN_VNNI_INLINE void AddDirect(const __m512i (&w)[kOutputs][kVectors], const __m512 (&scale)[kOutputs],
                                const std::byte* x, __m512 (&sum)[kOutputs][kRows]) {
  DFIN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    __m512i limb[kLimbs][kOutputs];
    DFIN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      DFIN_UNROLL
      for (int i = 0; i < kLimbs; ++i) {
        __m512i q = _mm512_load_si512(x + ((i * kVectors + v) * kRows + r) * kVectorBytes);
        DFIN_KEEP_IN_REGISTER(q);
        DFIN_UNROLL
        for (int n = 0; n < kOutputs; ++n)
          limb[i][n] = _mm512_dpbusd_epi32(v == 0 ? _mm512_setzero_si512() : limb[i][n], w[n][v], q);
      }
    }
    const std::byte* correction = x + (kLimbs * kVectors * kRows + r) * kVectorBytes;
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(limb[0][n], 8), limb[1][n]);
      const __m512i all = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), limb[2][n]);
      sum[n][r] = Scaled(all, correction, kRows, scale[n], sum[n][r]);
    }
  }
}

// Few rows: outputs [first, first + kOutputs), 1 or 2.
template <int kOutputs, int kRows>
DFIN_VNNI_INLINE void DirectTile(const Mxfp4Task& task, int64_t first) {
  const Mxfp4View& view = *task.weight;
  const auto* x = reinterpret_cast<const std::byte*>(task.x);
  __m512 sum[kOutputs][kRows], scale[kOutputs];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = _mm512_setzero_ps();
  }
  int64_t c = 0;
  for (; c + kBlockColumns <= view.cols; c += kBlockColumns) {
    __m512i w[kOutputs][kBlockVectors];
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      const uint8_t* packed = view.packed_row(first + n) + c / 2;
      DFIN_UNROLL
      for (int64_t line = 0; line < kBlockColumns / 2; line += 64)
        __builtin_prefetch(packed + kAheadBytes + line, 0, kAskL2);
      scale[n] = DecodeBlock(packed, view.scale_row(first + n) + c / kMxfp4Group, w[n]);
    }
    AddDirect<kBlockVectors>(w, scale, x, sum);
    x += InputVectors(kBlockVectors) * kRows * kVectorBytes;
  }
  for (; c < view.cols; c += kTailColumns) {
    __m512i w[kOutputs][kTailVectors];
    const int64_t groups = std::min(kTailGroups, (view.cols - c) / kMxfp4Group);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      scale[n] =
          DecodeTail(view.packed_row(first + n) + c / 2, view.scale_row(first + n) + c / kMxfp4Group, groups, w[n]);
    }
    AddDirect<kTailVectors>(w, scale, x, sum);
    x += InputVectors(kTailVectors) * kRows * kVectorBytes;
  }
  for (int r = 0; r < kRows; ++r) {
    alignas(16) float sums[4];
    _mm_store_ps(sums, SumLanes(sum[0][r], sum[kOutputs - 1][r], sum[0][r], sum[0][r]));
    for (int n = 0; n < kOutputs; ++n) OutRow(task, r)[first + n] = sums[n];
  }
}

template <int kRows>
DFIN_VNNI void Direct(const Mxfp4Task& task, int64_t begin, int64_t end) {
  // One output's bytes are one stream through memory. Three rows of input fill the L1 cache: two outputs share them.
  constexpr int kOutputs = kRows <= 2 ? 1 : 2;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) DirectTile<kOutputs, kRows>(task, n);
  for (; n < end; ++n) DirectTile<1, kRows>(task, n);
}

// A strip of outputs, one block of columns at a time, decoded once for all tiles of rows.
struct StripMemory {
  explicit StripMemory(float* scratch)
      : words(reinterpret_cast<std::byte*>(scratch)),
        scales(scratch + kStripOutputs * kBlockVectors * kLanes),
        sums(scales + kStripOutputs * kLanes) {}
  std::byte* word(int64_t n, int64_t v) const { return words + (n * kBlockVectors + v) * kVectorBytes; }
  float* scale(int64_t n) const { return scales + n * kLanes; }
  float* sum(int64_t r, int64_t n) const { return sums + (r * kStripOutputs + n) * kLanes; }

  std::byte* words;  // [kStripOutputs, kBlockVectors] vectors
  float* scales;     // [kStripOutputs] vectors
  float* sums;       // [rows, kStripOutputs] vectors
};

// The bytes a strip needs next: the same outputs' next columns, or the next strip's first ones. Tiles of rows share the
// asking, or the reads would come all at once and then none.
struct NextBlock {
  DFIN_VNNI_INLINE void Ask(int64_t n) const {
    if (n < begin || n >= end) return;
    DFIN_UNROLL
    for (int64_t line = 0; line < kBlockColumns / 2; line += 64)
      __builtin_prefetch(packed + n * packed_stride + line, 0, kAskL2);
    __builtin_prefetch(scales + n * scale_stride, 0, kAskL2);
  }

  const uint8_t* packed;
  const uint8_t* scales;
  int64_t packed_stride, scale_stride;
  int64_t begin = 0, end = 0;  // outputs to ask for
};

// kVectors column vectors of outputs [n, n + kTileOutputs) on a tile of kRows rows, whose first is row r.
template <int kRows>
DFIN_VNNI_INLINE void StripTile(const StripMemory& strip, int64_t n, int vectors, const std::byte* x, int64_t r,
                                bool is_first) {
  constexpr int kTileOutputs = TileOutputs(kRows);
  __m512i sum[kTileOutputs][kRows];
  DFIN_UNROLL
  for (int i = 0; i < kTileOutputs; ++i) {
    DFIN_UNROLL
    for (int k = 0; k < kRows; ++k) sum[i][k] = _mm512_setzero_si512();
  }
  const std::byte* words = strip.word(n, 0);
  for (int limb = 0; limb < kLimbs; ++limb) {
    DFIN_UNROLL
    for (int i = 0; i < kTileOutputs; ++i) {
      DFIN_UNROLL
      for (int k = 0; k < kRows; ++k) sum[i][k] = _mm512_slli_epi32(sum[i][k], 8);
    }
    for (int v = 0; v < vectors; ++v) {
      __m512i w[kTileOutputs];
      DFIN_UNROLL
      for (int i = 0; i < kTileOutputs; ++i) w[i] = _mm512_load_si512(words + (i * kBlockVectors + v) * kVectorBytes);
      DFIN_UNROLL
      for (int k = 0; k < kRows; ++k) {
        __m512i q = _mm512_load_si512(x + k * kVectorBytes);
        DFIN_KEEP_IN_REGISTER(q);
        DFIN_UNROLL
        for (int i = 0; i < kTileOutputs; ++i) sum[i][k] = _mm512_dpbusd_epi32(sum[i][k], w[i], q);
      }
      x += kRows * kVectorBytes;
    }
  }
  DFIN_UNROLL
  for (int i = 0; i < kTileOutputs; ++i) {
    const __m512 scale = _mm512_load_ps(strip.scale(n + i));
    DFIN_UNROLL
    for (int k = 0; k < kRows; ++k) {
      float* to = strip.sum(r + k, n + i);
      const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(to);
      _mm512_store_ps(to, Scaled(sum[i][k], x + k * kVectorBytes, kRows, scale, before));
    }
  }
}

// All outputs of the strip: whole tiles, the last of which may reach beyond them.
template <int kRows>
DFIN_VNNI __attribute__((noinline)) void StripRows(const StripMemory& strip, int64_t outputs, int vectors,
                                                   const NextBlock& next, const std::byte* x, int64_t r,
                                                   bool is_first) {
  constexpr int kTileOutputs = TileOutputs(kRows);
  for (int64_t n = 0; n < outputs; n += kTileOutputs) {
    for (int64_t i = n; i < n + kTileOutputs; ++i) next.Ask(i);
    StripTile<kRows>(strip, n, vectors, x, r, is_first);
  }
}

template <int kRows>
void StripRowsOfHeight(int64_t height, const StripMemory& strip, int64_t outputs, int vectors, const NextBlock& next,
                       const std::byte* x, int64_t r, bool is_first) {
  if (height == kRows) return StripRows<kRows>(strip, outputs, vectors, next, x, r, is_first);
  if constexpr (kRows > 1) StripRowsOfHeight<kRows - 1>(height, strip, outputs, vectors, next, x, r, is_first);
}

DFIN_VNNI void DecodeStrip(const Mxfp4View& view, int64_t first, int64_t outputs, int64_t c, bool is_block,
                           const StripMemory& strip) {
  for (int64_t n = 0; n < outputs; ++n) {
    const uint8_t* packed = view.packed_row(first + n) + c / 2;
    const uint8_t* scales = view.scale_row(first + n) + c / kMxfp4Group;
    if (is_block) {
      __m512i w[kBlockVectors];
      _mm512_store_ps(strip.scale(n), DecodeBlock(packed, scales, w));
      DFIN_UNROLL
      for (int v = 0; v < kBlockVectors; ++v) _mm512_store_si512(strip.word(n, v), w[v]);
    } else {
      __m512i w[kTailVectors];
      const int64_t groups = std::min(kTailGroups, (view.cols - c) / kMxfp4Group);
      _mm512_store_ps(strip.scale(n), DecodeTail(packed, scales, groups, w));
      for (int v = 0; v < kTailVectors; ++v) _mm512_store_si512(strip.word(n, v), w[v]);
    }
  }
}

DFIN_VNNI void StoreStrip(const Mxfp4Task& task, const StripMemory& strip, int64_t first, int64_t outputs) {
  for (int64_t r = 0; r < task.rows; ++r) {
    float* out = OutRow(task, r) + first;
    for (int64_t n = 0; n < outputs; n += 4) {
      const auto sum = [&](int64_t i) DFIN_VNNI { return _mm512_load_ps(strip.sum(r, n + i)); };
      const __m128 sums = SumLanes(sum(0), sum(1), sum(2), sum(3));
      const auto count = static_cast<unsigned>(std::min<int64_t>(4, outputs - n));
      _mm_mask_storeu_ps(out + n, static_cast<__mmask8>((1u << count) - 1), sums);
    }
  }
}

DFIN_VNNI void Strip(const Mxfp4Task& task, int64_t first, int64_t outputs, float* scratch) {
  const Mxfp4View& view = *task.weight;
  const StripMemory strip(scratch);
  const RowTiles tiles(task.rows, MostTileRows(task.rows));
  for (int64_t c = 0; c < view.cols;) {
    const bool is_block = c + kBlockColumns <= view.cols;
    DecodeStrip(view, first, outputs, c, is_block, strip);
    const int64_t following = c + (is_block ? kBlockColumns : kTailColumns);
    const int64_t row = following < view.cols ? first : first + outputs, column = following < view.cols ? following : 0;
    NextBlock next{view.packed_row(row) + column / 2, view.scale_row(row) + column / kMxfp4Group, view.cols / 2,
                   view.cols / kMxfp4Group};
    for (int64_t t = 0; t < tiles.count; ++t) {
      const int64_t r = tiles.First(t), height = tiles.Height(t);
      next.begin = outputs * t / tiles.count;
      next.end = outputs * (t + 1) / tiles.count;
      const auto* x = reinterpret_cast<const std::byte*>(task.x + r * PadColumns(view.cols)) +
                      InputOffset(view.cols, c) * height * kVectorBytes;
      StripRowsOfHeight<5>(height, strip, outputs, is_block ? kBlockVectors : kTailVectors, next, x, r, c == 0);
    }
    c = following;
  }
  StoreStrip(task, strip, first, outputs);
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

}  // namespace

void FillMxfp4Vnni(CpuKernels& kernels) {
  kernels.group_columns = GroupColumns;
  kernels.mxfp4 = Mxfp4;
}

bool ProcessorHasVnni() { return __builtin_cpu_supports("avx512vnni") != 0; }

}  // namespace deltafin::cpu

#else

namespace deltafin::cpu {

void FillMxfp4Vnni(CpuKernels&) {}
bool ProcessorHasVnni() { return false; }

}  // namespace deltafin::cpu

#endif
