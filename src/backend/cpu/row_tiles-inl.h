// row_tiles-inl.h: how the input rows of a matrix kernel lie in memory, per Highway target.
//
// Rows of a call are worked on in tiles of nearly the same height, at most kTileRows (a tile of a single row would wait
// for each of its few sums). Vector v of row k of a tile of h rows is vector number v * h + k of the tile: one pointer
// reaches all of it, and its rows never meet in the same lines of a cache. Which columns make up a vector is each
// kernel's own matter. Included once per target (guard toggles), after simd-inl.h. Thread rule: pure functions.
#if defined(DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#undef DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#else
#define DELTAFIN_BACKEND_CPU_ROW_TILES_INL_H_
#endif

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

// The sums of two outputs fit into 16 or 32 registers.
constexpr int kTileRows = kLanes == 8 ? 4 : 8;

struct RowTiles {
  explicit RowTiles(int64_t rows_in) : rows(rows_in), count((rows_in + kTileRows - 1) / kTileRows) {}
  int64_t First(int64_t t) const { return rows * t / count; }
  int64_t Height(int64_t t) const { return First(t + 1) - First(t); }

  int64_t rows, count;
};

// Where one row's vectors are.
struct TileRow {
  // `columns`: of the matrix; row < rows.
  TileRow(float* prepared, int64_t columns, int64_t row, int64_t rows) {
    const RowTiles tiles(rows);
    int64_t t = tiles.count - 1;
    while (tiles.First(t) > row) --t;
    step = tiles.Height(t) * kLanes;
    first = prepared + tiles.First(t) * PadColumns(columns) + (row - tiles.First(t)) * kLanes;
  }
  float* vector(int64_t v) const { return first + v * step; }

  float* first;
  int64_t step;
};

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
