// MlaAttend: absorbed latent attention (K3 report section 2.1.2, Eq. 7).
//
// An item is one (head, row). A block's positions are those of a fixed grid that the item may see; per block: scores,
// their maximum, exponentials, sum and mix, then merged into the item's running maximum, sum and mix, in ascending
// order of blocks. Every sum has one accumulator per lane and runs in ascending order, so tiles of items only share
// loads.
//
// Two ways with the same bits. By heads (`mla_attend`): items are carried in groups through the cache, block by block,
// so that a block is read from memory once for the group and once from cache for four items. By positions
// (`mla_blocks`): a worker computes some blocks for all items and leaves what each block gave; then items are merged.
// The latents are then read once in all, not once a worker: the way for few items and many positions.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/mla_attend.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafin::cpu {
namespace HWY_NAMESPACE {

constexpr int kTile = 4;                    // items that share loads
constexpr int kWide = kLanes == 8 ? 2 : 4;  // vectors or positions a tile of items works on at once

// What an item carries; the arrays are in scratch.
struct Item {
  int64_t head = 0, row = 0;
  int64_t visible = 0;      // positions 0 .. visible - 1
  float* query = nullptr;   // [latent + rope]: K_h^T q_nope, then q_rope
  float* mix = nullptr;     // [latent] running sum of exp(score - max) * latent
  float* part = nullptr;    // [latent] the same for one block
  float* weight = nullptr;  // [kMlaBlock] scores, then exponentials of a block
  float max = 0, sum = 0;   // of the blocks so far; in `mla_blocks` of one block
};

// ql = K_h^T q_nope for kItems rows of one head, vectors [c, c + kVectors) of the latent, the last of n channels.
template <int kItems, int kVectors>
HWY_INLINE void QueryColumns(const MlaAttendArgs& args, Item* items, int64_t c, int64_t n) {
  const DF d;
  const auto lanes = [n](int u) { return u + 1 < kVectors ? kLanes : n; };
  const uint16_t* k = args.kv_b_proj.bf16() + items[0].head * (args.nope + args.v_dim) * args.latent + c;
  VF sum[kItems][kVectors];
  const float* q[kItems];
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    q[t] = args.q.row(items[t].row) + items[t].head * (args.nope + args.rope);
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) sum[t][u] = hn::Zero(d);
  }
  for (int64_t i = 0; i < args.nope; ++i) {
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      const VF w = LoadSomeBf16(k + i * args.latent + u * kLanes, lanes(u));
      DFIN_UNROLL
      for (int t = 0; t < kItems; ++t) sum[t][u] = hn::MulAdd(hn::Set(d, q[t][i]), w, sum[t][u]);
    }
  }
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) StoreSome(sum[t][u], items[t].query + c + u * kLanes, lanes(u));
  }
}

template <int kItems>
void PrepareQueries(const MlaAttendArgs& args, Item* items) {
  int64_t c = 0;
  for (; c + kWide * kLanes <= args.latent; c += kWide * kLanes) QueryColumns<kItems, kWide>(args, items, c, kLanes);
  for (; c < args.latent; c += kLanes) QueryColumns<kItems, 1>(args, items, c, std::min(kLanes, args.latent - c));
  for (int t = 0; t < kItems; ++t) {
    const float* q = args.q.row(items[t].row) + items[t].head * (args.nope + args.rope);
    for (int64_t i = 0; i < args.rope; ++i) items[t].query[args.latent + i] = q[args.nope + i];
    items[t].max = -HUGE_VALF;
    items[t].sum = 0;
    std::fill_n(items[t].mix, args.latent, 0.0f);
  }
}

using DF4 = hn::CappedTag<float, 4>;
using VF4 = hn::Vec<DF4>;

// Halves added until four lanes are left.
template <class V>
HWY_INLINE VF4 FoldToFour(V v) {
  const hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(hn::DFromV<V>()) == 4) {
    return v;
  } else {
    return FoldToFour(hn::Add(hn::LowerHalf(v), hn::UpperHalf(hn::Half<decltype(d)>(), v)));
  }
}

// The sum of the lanes of each of `sums`, times `scale`: halves added until four lanes are left, then (0 + 2) + (1 + 3).
template <int kSums>
HWY_INLINE void StoreScores(const VF* sums, float scale, float* to) {
  DFIN_UNROLL
  for (int j = 0; j < kSums; ++j) {
    const VF4 folded = FoldToFour(sums[j]);
    const VF4 pairs = hn::Add(folded, hn::Shuffle1032(folded));
    to[j] = hn::GetLane(hn::Add(pairs, hn::Shuffle2301(pairs))) * scale;
  }
}

// A vector has blocks of four lanes.
constexpr int kBlocks = static_cast<int>(kLanes / 4);

// Of as many vectors as a vector has blocks, each folded to four lanes: vector BlockOf(j) in block j.
HWY_INLINE VF FoldToBlocks(const VF* v) {
  const DF d;
  if constexpr (kBlocks == 4) {
    const VF a = hn::Add(hn::ConcatLowerLower(d, v[1], v[0]), hn::ConcatUpperUpper(d, v[1], v[0]));
    const VF b = hn::Add(hn::ConcatLowerLower(d, v[3], v[2]), hn::ConcatUpperUpper(d, v[3], v[2]));
    return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
  } else {
    return hn::Add(hn::ConcatLowerLower(d, v[1], v[0]), hn::ConcatUpperUpper(d, v[1], v[0]));
  }
}
constexpr int BlockOf(int vector) { return kBlocks == 4 ? (vector % 2) * 2 + vector / 2 : vector; }

// StoreScores for a tile of four items at as many positions as a vector has blocks: the same additions, with shuffles
// that serve all of them. `sums`: [4][kBlocks].
HWY_INLINE void StoreTileScores(const VF* sums, float scale, const Item* items, int64_t at) {
  const DF d;
  const hn::Repartition<double, DF> d_pairs;
  const VF a = FoldToBlocks(sums), b = FoldToBlocks(sums + kBlocks), c = FoldToBlocks(sums + 2 * kBlocks),
           e = FoldToBlocks(sums + 3 * kBlocks);
  const auto ab = hn::BitCast(d_pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(d_pairs, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const VF of_positions = hn::Add(hn::BitCast(d, hn::InterleaveLower(d_pairs, ab, ce)),
                                  hn::BitCast(d, hn::InterleaveUpper(d_pairs, ab, ce)));
  // A position's block has its four items; wanted are an item's positions, one behind the other.
  alignas(64) int32_t from[kLanes];
  DFIN_UNROLL
  for (int i = 0; i < kLanes; ++i) from[i] = BlockOf(i % kBlocks) * 4 + i / kBlocks;
  const auto order = hn::SetTableIndices(d, from);
  alignas(64) float of_items[kLanes];
  hn::Store(hn::Mul(hn::TableLookupLanes(of_positions, order), hn::Set(d, scale)), d, of_items);
  DFIN_UNROLL
  for (int t = 0; t < kTile; ++t) std::copy_n(of_items + t * kBlocks, kBlocks, items[t].weight + at);
}

// Scores of kItems items at kPositions cache rows from `keys`.
template <int kItems, int kPositions>
HWY_INLINE void Scores(const MlaAttendArgs& args, const Item* items, const float* keys, float scale, int64_t at) {
  const DF d;
  const int64_t width = args.latent + args.rope;
  VF sum[kItems][kPositions];
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    DFIN_UNROLL
    for (int j = 0; j < kPositions; ++j) sum[t][j] = hn::Zero(d);
  }
  for (int64_t c = 0; c < width; c += kLanes) {
    VF key[kPositions];
    DFIN_UNROLL
    for (int j = 0; j < kPositions; ++j) key[j] = LoadSome(keys + j * args.cache.stride + c, width - c);
    DFIN_UNROLL
    for (int t = 0; t < kItems; ++t) {
      const VF q = LoadSome(items[t].query + c, width - c);
      DFIN_UNROLL
      for (int j = 0; j < kPositions; ++j) sum[t][j] = hn::MulAdd(q, key[j], sum[t][j]);
    }
  }
  if constexpr (kItems == kTile && kPositions == kBlocks && kBlocks > 1) {
    StoreTileScores(sum[0], scale, items, at);
  } else {
    for (int t = 0; t < kItems; ++t) StoreScores<kPositions>(sum[t], scale, items[t].weight + at);
  }
}

// Cache rows that are wanted next. They are asked for a few at a time, evenly over all that is computed meanwhile: a
// whole block at once would wait for its own requests, and the hardware does not run ahead of rows that are read twice.
struct Ahead {
  const char* at = nullptr;
  int64_t left = 0, row = 0;  // bytes

  Ahead(const PagedRows& cache, int64_t first, int64_t count) {
    if (count <= 0) return;
    at = cache.is_bf16() ? reinterpret_cast<const char*>(cache.bf16_row(first))
                         : reinterpret_cast<const char*>(cache.row(first));
    row = cache.stride * (cache.is_bf16() ? 2 : 4);
    left = count * row;
  }
  HWY_INLINE void Ask(int64_t wanted) {  // bytes
    const int64_t bytes = std::min(wanted, left);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, kAskL2);
    at += bytes;
    left -= bytes;
  }
  // Bytes to ask for with every row of every pass of MixColumns, so that those ask for half a block: whole lines.
  HWY_INLINE int64_t MixShare(int64_t latent) const {
    const int64_t passes = std::max<int64_t>(1, latent / (kWide * kLanes));
    return (row / 2 / passes + 63) / 64 * 64;
  }
};

// The rows of a block that are looked at, and what is asked for meanwhile.
struct Block {
  const float* keys = nullptr;
  int64_t count = 0;
  Ahead* ahead = nullptr;
};

// part[c ..] = sum_j weight_j latent_j for kItems items, vectors [c, c + kVectors) of the latent, the last of n
// channels.
template <int kItems, int kVectors>
HWY_INLINE void MixColumns(const MlaAttendArgs& args, Item* items, const Block& block, int64_t c, int64_t n) {
  const DF d;
  const auto lanes = [n](int u) { return u + 1 < kVectors ? kLanes : n; };
  VF sum[kItems][kVectors];
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) sum[t][u] = hn::Zero(d);
  }
  const int64_t share = block.ahead->MixShare(args.latent);
  for (int64_t j = 0; j < block.count; ++j) {
    block.ahead->Ask(share);
    const float* row = block.keys + j * args.cache.stride + c;
    VF key[kVectors];
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) key[u] = LoadSome(row + u * kLanes, lanes(u));
    DFIN_UNROLL
    for (int t = 0; t < kItems; ++t) {
      const VF weight = hn::Set(d, items[t].weight[j]);
      DFIN_UNROLL
      for (int u = 0; u < kVectors; ++u) sum[t][u] = hn::MulAdd(weight, key[u], sum[t][u]);
    }
  }
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) StoreSome(sum[t][u], items[t].part + c + u * kLanes, lanes(u));
  }
}

// What one block gave besides its mix.
struct BlockSum {
  float max, sum;
};

// Turns a block's scores into exponentials.
HWY_INLINE BlockSum WeighBlock(float* weight, int64_t count) {
  const DF d;
  const VF none = hn::Set(d, -HUGE_VALF);
  VF most = none;
  for (int64_t j = 0; j < count; j += kLanes) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(std::min(kLanes, count - j)));
    most = hn::Max(most, hn::IfThenElse(seen, LoadSome(weight + j, count - j), none));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, most));
  VF sums = hn::Zero(d);
  for (int64_t j = 0; j < count; j += kLanes) {
    const int64_t n = std::min(kLanes, count - j);
    const VF shifted = hn::Sub(LoadSome(weight + j, n), hn::Set(d, max));
    const VF e = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), ExpNonPositive(shifted));
    StoreSome(e, weight + j, n);
    sums = hn::Add(sums, e);
  }
  return {max, SumLanes(sums)};
}

// Merges a block into the item: its maximum and sum, then its mix `part`.
HWY_INLINE void MergeBlock(Item& item, BlockSum block, const float* part, int64_t latent) {
  const DF d;
  const bool rises = block.max > item.max;  // the one that has the maximum keeps its values: e^0 is 1
  const float factor = ScalarExpNonPositive(rises ? item.max - block.max : block.max - item.max);
  const float old_factor = rises ? factor : 1, new_factor = rises ? 1 : factor;
  item.sum = item.sum * old_factor + block.sum * new_factor;
  item.max = std::max(item.max, block.max);
  const VF old_mix = hn::Set(d, old_factor), new_mix = hn::Set(d, new_factor);
  for (int64_t c = 0; c < latent; c += kLanes) {
    const int64_t n = latent - c;
    const VF scaled = hn::Mul(LoadSome(item.mix + c, n), old_mix);
    StoreSome(hn::MulAdd(LoadSome(part + c, n), new_mix, scaled), item.mix + c, n);
  }
}

// A block for kItems items that all see exactly its rows: item.part, and what is returned for each.
template <int kItems>
void SumBlock(const MlaAttendArgs& args, Item* items, const Block& block, BlockSum* sums) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(args.nope + args.rope));
  const int64_t stride = args.cache.stride;
  int64_t j = 0;
  for (; j + kWide <= block.count; j += kWide) {
    block.ahead->Ask(kWide * block.ahead->row / 2);
    Scores<kItems, kWide>(args, items, block.keys + j * stride, scale, j);
  }
  for (; j < block.count; ++j) Scores<kItems, 1>(args, items, block.keys + j * stride, scale, j);
  for (int t = 0; t < kItems; ++t) sums[t] = WeighBlock(items[t].weight, block.count);
  int64_t c = 0;
  for (; c + kWide * kLanes <= args.latent; c += kWide * kLanes)
    MixColumns<kItems, kWide>(args, items, block, c, kLanes);
  for (; c < args.latent; c += kLanes) MixColumns<kItems, 1>(args, items, block, c, std::min(kLanes, args.latent - c));
}

// out_h = V_h mix / sum for kItems rows of one head.
template <int kItems>
void Values(const MlaAttendArgs& args, const Item* items) {
  const DF d;
  const int64_t head = items[0].head;
  const uint16_t* v = args.kv_b_proj.bf16() + (head * (args.nope + args.v_dim) + args.nope) * args.latent;
  for (int64_t i = 0; i < args.v_dim; ++i) {
    VF sum[kItems];
    DFIN_UNROLL
    for (int t = 0; t < kItems; ++t) sum[t] = hn::Zero(d);
    for (int64_t c = 0; c < args.latent; c += kLanes) {
      const VF w = LoadSomeBf16(v + i * args.latent + c, args.latent - c);
      DFIN_UNROLL
      for (int t = 0; t < kItems; ++t) sum[t] = hn::MulAdd(w, LoadSome(items[t].mix + c, args.latent - c), sum[t]);
    }
    for (int t = 0; t < kItems; ++t)
      args.out.row(items[t].row)[head * args.v_dim + i] = SumLanes(sum[t]) / items[t].sum;
  }
}

// Calls of four when the next four items belong together, else one by one.
HWY_INLINE bool IsTile(const Item* items, int64_t left) {
  return left >= kTile && items[0].head == items[kTile - 1].head;
}

// A block of BF16 cache rows as float32, packed.
void WidenBlock(const PagedRows& cache, int64_t first, int64_t count, float* to) {
  for (int64_t r = 0; r < count; ++r) {
    const uint16_t* row = cache.bf16_row(first + r);
    for (int64_t c = 0; c < cache.width; c += kLanes)
      StoreSome(LoadSomeBf16(row + c, cache.width - c), to + r * cache.width + c, cache.width - c);
  }
}

// Positions of the block from `first` on that the item sees.
HWY_INLINE int64_t Seen(const Item& item, int64_t first) {
  return std::clamp<int64_t>(item.visible - first, 0, kMlaBlock);
}

// The block from position `first` on for all items, in tiles of items that see equally many of its positions; then
// done(t, sum) for each that sees any.
template <typename Done>
HWY_INLINE void SumBlocks(const MlaAttendArgs& args, Item* items, int64_t count, const float* keys, int64_t first,
                          Ahead ahead, const Done& done) {
  for (int64_t t = 0; t < count;) {
    const int64_t positions = Seen(items[t], first);
    int64_t alike = 1;
    while (alike < std::min<int64_t>(kTile, count - t) && Seen(items[t + alike], first) == positions) ++alike;
    const int64_t tile = alike == kTile ? kTile : alike >= 2 ? 2 : 1;
    const Block block = {keys, positions, &ahead};
    BlockSum sums[kTile];
    if (positions > 0) {
      if (tile == kTile) SumBlock<kTile>(args, items + t, block, sums);
      if (tile == 2) SumBlock<2>(args, items + t, block, sums);
      if (tile == 1) SumBlock<1>(args, items + t, block, sums);
      for (int64_t i = 0; i < tile; ++i) done(t + i, sums[i]);
    }
    t += tile;
  }
}

// The rows of a block, widened to float32 in `widened` [kMlaBlock, latent + rope] where they are BF16.
HWY_INLINE const float* BlockKeys(const PagedRows& cache, int64_t first, int64_t end, float* widened) {
  if (!cache.is_bf16()) return cache.row(first);
  WidenBlock(cache, first, std::min(kMlaBlock, end - first), widened);
  return widened;
}

// What of the positions before `end` follows the block from `first` on, of a block at most.
HWY_INLINE Ahead BehindBlock(const PagedRows& cache, int64_t first, int64_t end) {
  return {cache, first + kMlaBlock, std::min(kMlaBlock, end - first - kMlaBlock)};
}

// The arguments as kernels of blocks see them: rows of a widened block are packed.
HWY_INLINE MlaAttendArgs BlockArgs(const MlaAttendArgs& args) {
  MlaAttendArgs of_blocks = args;
  if (args.cache.is_bf16()) of_blocks.cache.stride = args.cache.width;
  return of_blocks;
}

void AttendItems(const MlaAttendArgs& args, Item* items, int64_t count, float* widened) {
  for (int64_t t = 0; t < count;) {
    const bool is_tile = IsTile(items + t, count - t);
    if (is_tile)
      PrepareQueries<kTile>(args, items + t);
    else
      PrepareQueries<1>(args, items + t);
    t += is_tile ? kTile : 1;
  }
  int64_t furthest = 0;
  for (int64_t t = 0; t < count; ++t) furthest = std::max(furthest, items[t].visible);
  const MlaAttendArgs of_blocks = BlockArgs(args);
  for (int64_t first = 0; first < furthest; first += kMlaBlock) {
    const float* keys = BlockKeys(args.cache, first, furthest, widened);
    SumBlocks(of_blocks, items, count, keys, first, BehindBlock(args.cache, first, furthest),
              [&](int64_t t, BlockSum sum) { MergeBlock(items[t], sum, items[t].part, args.latent); });
  }
  for (int64_t t = 0; t < count;) {
    const bool is_tile = IsTile(items + t, count - t);
    if (is_tile)
      Values<kTile>(args, items + t);
    else
      Values<1>(args, items + t);
    t += is_tile ? kTile : 1;
  }
}

void MlaAttend(const MlaAttendArgs& args, int64_t begin, int64_t end, float* scratch) {
  const int64_t rows = args.q.rows, width = MlaPadded(args.latent + args.rope);
  Item items[kMlaItems];
  for (int64_t i = 0; i < kMlaItems; ++i) {
    float* at = scratch + i * (3 * width + kMlaBlock);
    items[i].query = at;
    items[i].mix = at + width;
    items[i].part = at + 2 * width;
    items[i].weight = at + 3 * width;
  }
  for (int64_t first = begin * rows; first < end * rows; first += kMlaItems) {
    const int64_t count = std::min(kMlaItems, end * rows - first);
    for (int64_t i = 0; i < count; ++i) {
      items[i].head = (first + i) / rows;
      items[i].row = (first + i) % rows;
      items[i].visible = args.first_position + items[i].row + 1;
    }
    AttendItems(args, items, count, scratch + kMlaItems * (3 * width + kMlaBlock));
  }
}

// Item i of a split pass: what it carries lies in its record.
Item SplitItem(const MlaAttendArgs& args, const MlaSplit& split, int64_t i) {
  Item item;
  item.head = i / args.q.rows;
  item.row = i % args.q.rows;
  item.visible = args.first_position + item.row + 1;
  item.query = split.query(i);
  item.mix = split.mix(i);
  item.max = split.mix(i)[args.latent];
  item.sum = split.mix(i)[args.latent + 1];
  return item;
}

void KeepSums(float* record, int64_t latent, BlockSum sum) {
  record[latent] = sum.max;
  record[latent + 1] = sum.sum;
}

void MlaQueries(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    Item item = SplitItem(args, split, i);
    PrepareQueries<1>(args, &item);
    KeepSums(item.mix, args.latent, {item.max, item.sum});
  }
}

void MlaBlocks(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end, float* scratch) {
  const MlaAttendArgs of_blocks = BlockArgs(args);
  float* widened = scratch + kMlaItems * kMlaBlock;
  const int64_t positions = std::min(args.first_position + args.q.rows, (split.first_block + end) * kMlaBlock);
  Item items[MlaSplit::kMostItems];
  for (int64_t t = 0; t < split.items; ++t) {
    items[t] = SplitItem(args, split, t);
    items[t].weight = scratch + t % kMlaItems * kMlaBlock;
  }
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = (split.first_block + b) * kMlaBlock;
    const float* keys = BlockKeys(args.cache, first, positions, widened);
    const Ahead ahead = BehindBlock(args.cache, first, positions);
    for (int64_t t = 0; t < split.items; ++t) items[t].part = split.part(b, t);
    for (int64_t group = 0; group < split.items; group += kMlaItems) {
      SumBlocks(of_blocks, items + group, std::min(kMlaItems, split.items - group), keys, first,
                group == 0 ? ahead : Ahead(args.cache, 0, 0),
                [&](int64_t t, BlockSum sum) { KeepSums(items[group + t].part, args.latent, sum); });
    }
  }
}

void MlaMerge(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    Item item = SplitItem(args, split, i);
    for (int64_t b = 0; b < split.blocks; ++b) {
      if (Seen(item, (split.first_block + b) * kMlaBlock) == 0) break;
      const float* part = split.part(b, i);
      MergeBlock(item, {part[args.latent], part[args.latent + 1]}, part, args.latent);
    }
    KeepSums(item.mix, args.latent, {item.max, item.sum});
  }
}

void MlaValues(const MlaAttendArgs& args, const MlaSplit& split, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Item item = SplitItem(args, split, i);
    Values<1>(args, &item);
  }
}

void FillMlaTarget(CpuKernels& kernels) {
  kernels.mla_attend = MlaAttend;
  kernels.mla_queries = MlaQueries;
  kernels.mla_blocks = MlaBlocks;
  kernels.mla_merge = MlaMerge;
  kernels.mla_values = MlaValues;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

int64_t MlaScratchFloats(int64_t latent_width) {
  const int64_t width = MlaPadded(latent_width);
  return kMlaItems * (3 * width + kMlaBlock) + kMlaBlock * width;
}

void FillMla(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillMlaTarget, kernels); }

}  // namespace deltafin::cpu
#endif
