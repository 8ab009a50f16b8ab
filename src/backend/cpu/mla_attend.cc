// MlaAttend: absorbed latent attention (K3 report section 2.1.2, Eq. 7).
//
// An item is one (head, row). Items are carried in groups through the cache, block by block, so that a block is read
// from memory once for the group and once from cache for four items. A block's positions are those of a fixed grid that
// the item may see; per block: scores, their maximum, exponentials, sum and mix, then merged into the item's running
// maximum, sum and mix. Every sum has one accumulator per lane and runs in ascending order, so tiles of items only
// share loads.
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
  float max = 0, sum = 0;
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

// Scores of kItems items at kPositions cache rows from `keys`.
template <int kItems, int kPositions>
HWY_INLINE void Scores(const MlaAttendArgs& args, const Item* items, const float* keys, int64_t at) {
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
  const float scale = 1.0f / std::sqrt(static_cast<float>(args.nope + args.rope));
  for (int t = 0; t < kItems; ++t) {
    for (int j = 0; j < kPositions; ++j) items[t].weight[at + j] = SumLanes(sum[t][j]) * scale;
  }
}

// part[c ..] = sum_j weight_j latent_j for kItems items over `count` positions.
template <int kItems, int kVectors>
HWY_INLINE void MixColumns(const MlaAttendArgs& args, Item* items, const float* keys, int64_t count, int64_t c,
                           int64_t n) {
  const DF d;
  const auto lanes = [n](int u) { return u + 1 < kVectors ? kLanes : n; };
  VF sum[kItems][kVectors];
  DFIN_UNROLL
  for (int t = 0; t < kItems; ++t) {
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) sum[t][u] = hn::Zero(d);
  }
  for (int64_t j = 0; j < count; ++j) {
    VF key[kVectors];
    DFIN_UNROLL
    for (int u = 0; u < kVectors; ++u) key[u] = LoadSome(keys + j * args.cache.stride + c + u * kLanes, lanes(u));
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

// Turns the block's scores into exponentials and merges the block's maximum and sum. Returns the factors of the running
// mix and of the block's mix.
struct Factors {
  float old_mix, block;
};
HWY_INLINE Factors MergeWeights(Item& item, int64_t count) {
  const DF d;
  float block_max = item.weight[0];
  for (int64_t j = 1; j < count; ++j) block_max = std::max(block_max, item.weight[j]);
  VF sums = hn::Zero(d);
  for (int64_t j = 0; j < count; j += kLanes) {
    const int64_t n = std::min(kLanes, count - j);
    const VF shifted = hn::Sub(LoadSome(item.weight + j, n), hn::Set(d, block_max));
    const VF e = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), ExpNonPositive(shifted));
    StoreSome(e, item.weight + j, n);
    sums = hn::Add(sums, e);
  }
  const float merged = std::max(item.max, block_max);
  const Factors factors = {ScalarExpNonPositive(item.max - merged), ScalarExpNonPositive(block_max - merged)};
  item.sum = item.sum * factors.old_mix + SumLanes(sums) * factors.block;
  item.max = merged;
  return factors;
}

HWY_INLINE void MergeMix(const MlaAttendArgs& args, Item& item, Factors factors) {
  const DF d;
  const VF old_mix = hn::Set(d, factors.old_mix), block = hn::Set(d, factors.block);
  for (int64_t c = 0; c < args.latent; c += kLanes) {
    const int64_t n = args.latent - c;
    const VF scaled = hn::Mul(LoadSome(item.mix + c, n), old_mix);
    StoreSome(hn::MulAdd(LoadSome(item.part + c, n), block, scaled), item.mix + c, n);
  }
}

// One block of `count` positions from `keys` for kItems items that all see exactly those.
template <int kItems>
void AttendBlock(const MlaAttendArgs& args, Item* items, const float* keys, int64_t count) {
  int64_t j = 0;
  for (; j + kWide <= count; j += kWide) Scores<kItems, kWide>(args, items, keys + j * args.cache.stride, j);
  for (; j < count; ++j) Scores<kItems, 1>(args, items, keys + j * args.cache.stride, j);
  Factors factors[kItems];
  for (int t = 0; t < kItems; ++t) factors[t] = MergeWeights(items[t], count);
  int64_t c = 0;
  for (; c + kWide * kLanes <= args.latent; c += kWide * kLanes) {
    MixColumns<kItems, kWide>(args, items, keys, count, c, kLanes);
  }
  for (; c < args.latent; c += kLanes) {
    MixColumns<kItems, 1>(args, items, keys, count, c, std::min(kLanes, args.latent - c));
  }
  for (int t = 0; t < kItems; ++t) MergeMix(args, items[t], factors[t]);
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

// Asks for cache rows that are wanted next: pages are small ones of the system, which the hardware does not run ahead
// in.
HWY_INLINE void AskForRows(const PagedRows& cache, int64_t first, int64_t count) {
  if (count <= 0) return;
  const auto* rows = cache.is_bf16() ? reinterpret_cast<const char*>(cache.bf16_row(first))
                                     : reinterpret_cast<const char*>(cache.row(first));
  const int64_t bytes = count * cache.stride * (cache.is_bf16() ? 2 : 4);
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(rows + at);
}

// `widened`: [kMlaBlock, latent + rope] scratch.
void AttendItems(const MlaAttendArgs& cache_args, Item* items, int64_t count, float* widened) {
  MlaAttendArgs args = cache_args;
  if (args.cache.is_bf16()) args.cache.stride = args.cache.width;  // of the widened block
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
  for (int64_t first = 0; first < furthest; first += kMlaBlock) {
    AskForRows(cache_args.cache, first + kMlaBlock, std::min(kMlaBlock, furthest - first - kMlaBlock));
    const float* keys = widened;
    if (args.cache.is_bf16())
      WidenBlock(cache_args.cache, first, std::min(kMlaBlock, furthest - first), widened);
    else
      keys = args.cache.row(first);
    const auto seen = [&](int64_t t) { return std::clamp<int64_t>(items[t].visible - first, 0, kMlaBlock); };
    for (int64_t t = 0; t < count;) {
      const int64_t positions = seen(t);
      int64_t alike = 1;
      while (alike < std::min<int64_t>(kTile, count - t) && seen(t + alike) == positions) ++alike;
      const int64_t tile = alike == kTile ? kTile : alike >= 2 ? 2 : 1;
      if (positions > 0 && tile == kTile) AttendBlock<kTile>(args, items + t, keys, positions);
      if (positions > 0 && tile == 2) AttendBlock<2>(args, items + t, keys, positions);
      if (positions > 0 && tile == 1) AttendBlock<1>(args, items + t, keys, positions);
      t += tile;
    }
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
  const int64_t rows = args.q.rows, width = (args.latent + args.rope + 15) / 16 * 16;
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

void FillMlaTarget(CpuKernels& kernels) { kernels.mla_attend = MlaAttend; }

}  // namespace HWY_NAMESPACE
}  // namespace deltafin::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafin::cpu {

int64_t MlaScratchFloats(int64_t latent_width) {
  const int64_t width = (latent_width + 15) / 16 * 16;
  return kMlaItems * (3 * width + kMlaBlock) + kMlaBlock * width;
}

void FillMla(Isa isa, CpuKernels& kernels) { DFIN_CALL_FOR_ISA(isa, FillMlaTarget, kernels); }

}  // namespace deltafin::cpu
#endif
