// row_tiles.h: how a matrix kernel cuts its input rows into tiles of nearly the same height.
//
// Vector v of row k of a tile of h rows is vector number v * h + k of the tile, and a tile's vectors follow those of
// the tiles before it: one pointer reaches all of a tile. A tile of a single row is avoided where it can be, since it
// would wait for each of its few sums. Thread rule: values.
#pragma once

#include <cstdint>

namespace deltafin::cpu {

struct RowTiles {
  // `most`: the greatest height of a tile.
  RowTiles(int64_t rows_in, int64_t most) : rows(rows_in), count((rows_in + most - 1) / most) {}
  int64_t First(int64_t t) const { return rows * t / count; }
  int64_t Height(int64_t t) const { return First(t + 1) - First(t); }
  // The tile of a row < rows.
  int64_t TileOf(int64_t row) const {
    int64_t t = count - 1;
    while (First(t) > row) --t;
    return t;
  }

  int64_t rows, count;
};

}  // namespace deltafin::cpu
