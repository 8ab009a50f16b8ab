// row_tiles-inl.h: where the input rows of a matrix kernel lie in memory, and how its sums end, per Highway target.
//
// Rows lie in tiles (row_tiles.h) of at most kTileRows, where rows never meet in the same lines of a cache. Which
// columns make up a vector is each kernel's own matter. Included once per target (guard toggles), after simd-inl.h.
// Thread rule: pure functions.
#if defined(DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#undef DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#else
#define DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#endif

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/row_tiles.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

// The sums of two outputs fit into 16 or 32 registers.
constexpr int kTileRows = kLanes == 8 ? 4 : 8;

// Where one row's vectors are.
struct TileRow {
  // `columns`: of the matrix; row < rows.
  TileRow(float* prepared, int64_t columns, int64_t row, int64_t rows) {
    const RowTiles tiles(rows, kTileRows);
    const int64_t t = tiles.TileOf(row);
    step = tiles.Height(t) * kLanes;
    first = prepared + tiles.First(t) * PadColumns(columns) + (row - tiles.First(t)) * kLanes;
  }
  float* vector(int64_t v) const { return first + v * step; }

  float* first;
  int64_t step;
};

// The lane sums of kLanes vectors that lie `step` vectors apart, in order; each the same bits as SumLanes(): halves are
// added, then halves of those, and so on. Fifteen additions of whole vectors for sixteen sums.
HWY_INLINE VF SumLanesOfMany(const float* vectors, int64_t step) {
  const DF d;
  const hn::Repartition<uint64_t, DF> d64;
  const auto load = [&](int64_t n) HWY_ATTR { return hn::Load(d, vectors + n * step * kLanes); };
  // Vectors j, j + 4, ...: block b holds what is left of number j + 4 b.
  const auto blocks = [&](int64_t j) HWY_ATTR {
    if constexpr (kLanes == 16) {
      const auto halves = [&](int64_t a, int64_t b) HWY_ATTR {
        const VF x = load(a), y = load(b);
        return hn::Add(hn::ConcatLowerLower(d, y, x), hn::ConcatUpperUpper(d, y, x));
      };
      const VF p = halves(j, j + 8), q = halves(j + 4, j + 12);
      return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(q), p), hn::OddEvenBlocks(q, hn::SwapAdjacentBlocks(p)));
    } else if constexpr (kLanes == 8) {
      const VF x = load(j), y = load(j + 4);
      return hn::Add(hn::ConcatLowerLower(d, y, x), hn::ConcatUpperUpper(d, y, x));
    } else {
      return load(j);
    }
  };
  const auto pairs = [&](VF x, VF y) HWY_ATTR {
    const auto a = hn::BitCast(d64, x), b = hn::BitCast(d64, y);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)), hn::BitCast(d, hn::InterleaveUpper(d64, a, b)));
  };
  const VF x = pairs(blocks(0), blocks(2)), y = pairs(blocks(1), blocks(3));
  return hn::Add(hn::OddEven(hn::Shuffle2301(y), x), hn::OddEven(y, hn::Shuffle2301(x)));
}

// out[n] = the sum of vector n's lanes, for n < count; vectors lie `step` vectors apart.
HWY_INLINE void StoreLaneSums(const float* vectors, int64_t step, int64_t count, float* out) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes) {
    hn::StoreU(SumLanesOfMany(vectors + n * step * kLanes, step), DF(), out + n);
  }
  for (; n < count; ++n) out[n] = SumLanes(hn::Load(DF(), vectors + n * step * kLanes));
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
