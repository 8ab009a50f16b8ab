// linear_tiles-inl.h: matrix times rows for weights that are decoded two vectors at a time, per Highway target.
//
// A block is 2 * kLanes columns: one vector of its even ones, one of its odd ones, because a 32-bit lane of packed BF16
// holds an even column below an odd one and one instruction each takes them apart. Accumulation of one (row, output):
// one vector accumulator over the blocks in order (even, then odd), then the lane sum. With few rows the sums stay in
// registers; with more, strips of outputs are visited by one span of columns after the other, with the sums in memory
// in between. Both run the same operations in the same order.
// `Weights` has At(n), one output's row, whose Load(c, even, odd) and LoadPartial(c, columns, even, odd) give the block
// at column c (of a partial one, `columns` are left), while Ask(c) only has its bytes fetched; and Span(first, outputs,
// begin, end, scratch), which gets ready to visit those outputs' columns and returns something else with At(): itself,
// or weights that are decoded already. Included once per target (guard toggles). Thread rule: pure functions.
#if defined(DELTAFIN_BACKEND_CPU_LINEAR_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFIN_BACKEND_CPU_LINEAR_TILES_INL_H_
#undef DELTAFIN_BACKEND_CPU_LINEAR_TILES_INL_H_
#else
#define DELTAFIN_BACKEND_CPU_LINEAR_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "backend/cpu/row_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kPair = 2 * kLanes;  // columns of one block
// Most columns of a strip's visit: the input of a tile of rows stays in the L1 cache.
constexpr int64_t kSpanColumns = 512;
constexpr int64_t kStripOutputs = 64;
constexpr int64_t kFewRows = 4;
static_assert(kFewRows <= kTileRows, "few rows are one tile");

// Which columns to ask for while a column is worked on: those `columns` further; from column `turn` on, those another
// `jump` further. Of a strip's outputs only [first, last): its tiles of rows share the asking, or the reads would come
// all at once and then none.
struct Ahead {
  int64_t columns = 0;
  int64_t turn = INT64_MAX;
  int64_t jump = 0;
  int64_t first = 0, last = INT64_MAX;
};

// Adds the products of columns [begin, end) to the sums; x points at the tile's vectors of column `begin`.
template <int kOutputs, int kRows, typename Row>
HWY_INLINE void AddColumns(const Row (&w)[kOutputs], int64_t begin, int64_t end, const float* x, const Ahead& ahead,
                           VF (&sum)[kOutputs][kRows]) {
  const DF d;
  for (int64_t c = begin; c < end; c += kPair) {
    VF even[kOutputs], odd[kOutputs];
    const int64_t soon = c + ahead.columns + (c < ahead.turn ? 0 : ahead.jump);
    DFIN_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      w[n].Ask(soon);
      if (HWY_UNLIKELY(c + kPair > end))
        w[n].LoadPartial(c, end - c, even[n], odd[n]);
      else
        w[n].Load(c, even[n], odd[n]);
    }
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      VF xs = hn::Load(d, x + r * kLanes);
      DFIN_KEEP_IN_REGISTER(xs.raw);
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) sum[n][r] = hn::MulAdd(even[n], xs, sum[n][r]);
    }
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      VF xs = hn::Load(d, x + (kRows + r) * kLanes);
      DFIN_KEEP_IN_REGISTER(xs.raw);
      DFIN_UNROLL
      for (int n = 0; n < kOutputs; ++n) sum[n][r] = hn::MulAdd(odd[n], xs, sum[n][r]);
    }
    x += 2 * kRows * kLanes;
  }
}

// All columns of kOutputs outputs, sums in registers.
template <int kOutputs, int kRows, typename Weights>
HWY_INLINE void DirectTile(const Weights& weights, const LinearTask& task, int64_t columns, int64_t first) {
  const DF d;
  typename Weights::Row w[kOutputs];
  VF sum[kOutputs][kRows];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    w[n] = weights.At(first + n);
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) sum[n][r] = hn::Zero(d);
  }
  // Rows lie one below the other: at their end, the beginning of the next tile's comes soon.
  constexpr int64_t kAhead = Weights::Row::kAhead;
  AddColumns<kOutputs, kRows>(w, 0, columns, task.x, {kAhead, columns - kAhead, (kOutputs - 1) * columns}, sum);
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kOutputs; ++n) task.out.row(r)[first + n] = SumLanes(sum[n][r]);
  }
}

template <int kRows, typename Weights>
void Direct(const Weights& weights, const LinearTask& task, int64_t columns, int64_t begin, int64_t end) {
  constexpr int kOutputs = kRows <= 2 || kLanes != 8 ? 4 : 2;
  int64_t n = begin;
  for (; n + kOutputs <= end; n += kOutputs) DirectTile<kOutputs, kRows>(weights, task, columns, n);
  for (; n < end; ++n) DirectTile<1, kRows>(weights, task, columns, n);
}

// Columns [begin, end) of kOutputs outputs on one tile of rows; sums [kOutputs][kRows] in memory, written only when
// `begin` is 0.
template <int kOutputs, int kRows, typename Row>
HWY_INLINE void SpanTile(const Row (&w)[kOutputs], int64_t begin, int64_t end, const float* x, const Ahead& ahead,
                         float* sums) {
  const DF d;
  VF sum[kOutputs][kRows];
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sum[n][r] = begin == 0 ? hn::Zero(d) : hn::Load(d, sums + (n * kRows + r) * kLanes);
    }
  }
  AddColumns<kOutputs, kRows>(w, begin, end, x, ahead, sum);
  DFIN_UNROLL
  for (int n = 0; n < kOutputs; ++n) {
    DFIN_UNROLL
    for (int r = 0; r < kRows; ++r) hn::Store(sum[n][r], d, sums + (n * kRows + r) * kLanes);
  }
}

// The same for all outputs of a strip. Sums of the tile: [outputs][kRows].
template <int kRows, typename Weights>
HWY_NOINLINE void SpanRows(const Weights& weights, int64_t first, int64_t outputs, int64_t begin, int64_t end,
                           const float* x, const Ahead& ahead, float* sums) {
  int64_t n = 0;
  for (; n + 2 <= outputs; n += 2) {
    const typename Weights::Row w[2] = {weights.At(first + n), weights.At(first + n + 1)};
    const Ahead asked = n >= ahead.first && n < ahead.last ? ahead : Ahead{};
    SpanTile<2, kRows>(w, begin, end, x, asked, sums + n * kRows * kLanes);
  }
  if (n == outputs) return;
  const typename Weights::Row w[1] = {weights.At(first + n)};
  SpanTile<1, kRows>(w, begin, end, x, ahead, sums + n * kRows * kLanes);
}

template <int kRows, typename Weights>
HWY_INLINE void SpanOfHeight(int64_t height, const Weights& weights, int64_t first, int64_t outputs, int64_t begin,
                             int64_t end, const float* x, const Ahead& ahead, float* sums) {
  if (height == kRows) return SpanRows<kRows>(weights, first, outputs, begin, end, x, ahead, sums);
  if constexpr (kRows > 1) SpanOfHeight<kRows - 1>(height, weights, first, outputs, begin, end, x, ahead, sums);
}

template <typename Weights>
void Strip(const Weights& weights, const LinearTask& task, int64_t columns, int64_t first, int64_t outputs,
           float* scratch) {
  float* sums = scratch;
  float* span_scratch = scratch + kMatrixRows * kStripOutputs * kLanes;
  const RowTiles tiles(task.rows, kTileRows);
  // A single tile of rows meets every weight once, fresh from memory, and leaves more of the L1 cache to them.
  const int64_t width = tiles.count == 1 ? kSpanColumns / 2 : kSpanColumns;
  for (int64_t c = 0; c < columns; c += width) {
    const int64_t end = std::min(columns, c + width);
    const auto span = weights.Span(first, outputs, c, end, span_scratch);
    for (int64_t t = 0; t < tiles.count; ++t) {
      const int64_t r = tiles.First(t), height = tiles.Height(t);
      const float* x = task.x + r * PadColumns(columns) + c * height;
      // The next span of these outputs, or the first one of the next strip's.
      const int64_t distance = end < columns ? width : outputs * columns - c;
      const Ahead ahead{
          .columns = distance, .first = outputs * t / tiles.count, .last = outputs * (t + 1) / tiles.count};
      SpanOfHeight<kTileRows>(height, span, first, outputs, c, end, x, ahead, sums + r * kStripOutputs * kLanes);
    }
  }
  for (int64_t t = 0; t < tiles.count; ++t) {
    const int64_t first_row = tiles.First(t), height = tiles.Height(t);
    const float* sum = sums + first_row * kStripOutputs * kLanes;
    for (int64_t r = 0; r < height; ++r) {
      StoreLaneSums(sum + r * kLanes, height, outputs, task.out.row(first_row + r) + first);
    }
  }
}

// Outputs [begin, end) of the task.
template <typename Weights>
void LinearOutputs(const Weights& weights, const LinearTask& task, int64_t begin, int64_t end, float* scratch) {
  const int64_t columns = task.weight->shape[1];
  switch (task.rows) {
    case 0:
      return;
    case 1:
      return Direct<1>(weights, task, columns, begin, end);
    case 2:
      return Direct<2>(weights, task, columns, begin, end);
    case 3:
      return Direct<3>(weights, task, columns, begin, end);
    case kFewRows:
      return Direct<kFewRows>(weights, task, columns, begin, end);
    default:
      break;
  }
  for (int64_t n = begin; n < end; n += kStripOutputs)
    Strip(weights, task, columns, n, std::min(kStripOutputs, end - n), scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
