#include "cache/trace_replay.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "cache/expert_cache.h"

namespace deltafin {
namespace {

size_t IndexOf(const ExpertTraceShape& shape, ExpertKey key) {
  return static_cast<size_t>(key.layer) * static_cast<size_t>(shape.experts) + static_cast<size_t>(key.expert);
}

size_t ExpertsOfAllLayers(const ExpertTraceShape& shape) {
  return static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.experts);
}

// The slots of ExpertCache without the reads.
class ReplayedCache {
 public:
  ReplayedCache(const ExpertTraceShape& shape, int64_t slots, EvictionPolicy& policy)
      : shape_(shape),
        policy_(policy),
        keys_(static_cast<size_t>(slots)),
        held_(static_cast<size_t>(slots)),
        slot_of_(ExpertsOfAllLayers(shape), -1) {
    for (int64_t slot = slots; slot > 0; --slot) free_.push_back(static_cast<int32_t>(slot - 1));
  }

  void Warm(ExpertKey key) {
    if (free_.empty() || slot_of_[IndexOf(shape_, key)] >= 0) return;
    Put(key, TakeSlot(false), /*rows=*/0);
  }

  void Batch(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows) {
    policy_.Began(layer, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
    arrived_.clear();
    delivered_ = 0;
    hits_ = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      const int32_t slot = slot_of_[IndexOf(shape_, {layer, experts[i]})];
      if (slot < 0) continue;
      policy_.Used(slot, rows[i]);
      Hold(slot);
    }
    // Evicted meanwhile or not: what was no hit at the beginning is a miss.
    hits_ = arrived_.size();
    size_t hit = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      const ExpertKey key{layer, experts[i]};
      if (hit < hits_ && keys_of_hits_[hit] == key) {
        ++hit;
        continue;
      }
      Read(key, rows[i]);
    }
    while (delivered_ < arrived_.size()) Deliver();
    keys_of_hits_.clear();
  }

  uint64_t reads() const { return reads_; }

 private:
  void Read(ExpertKey key, int32_t rows) {
    int32_t slot = TakeSlot(MayEvict());
    while (slot < 0) {
      Deliver();
      slot = TakeSlot(MayEvict());
    }
    ++reads_;
    Put(key, slot, rows);
    held_[static_cast<size_t>(slot)] = true;
    arrived_.push_back(slot);
  }

  void Hold(int32_t slot) {
    held_[static_cast<size_t>(slot)] = true;
    keys_of_hits_.push_back(keys_[static_cast<size_t>(slot)]);
    arrived_.push_back(slot);
  }

  void Deliver() {
    DFIN_CHECK(delivered_ < arrived_.size(), "a slot comes free when an expert was computed");
    held_[static_cast<size_t>(arrived_[delivered_++])] = false;
  }

  bool MayEvict() const {
    const size_t in_transit = arrived_.size() - std::max(delivered_, hits_);
    return static_cast<int64_t>(in_transit) < ExpertCache::Transit(shape_.experts_per_token);
  }

  int32_t TakeSlot(bool may_evict) {
    if (!free_.empty()) {
      const int32_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (!may_evict) return -1;
    const int32_t victim = policy_.Victim([this](int32_t slot) { return !held_[static_cast<size_t>(slot)]; });
    if (victim < 0) return -1;
    policy_.Removed(victim);
    slot_of_[IndexOf(shape_, keys_[static_cast<size_t>(victim)])] = -1;
    return victim;
  }

  void Put(ExpertKey key, int32_t slot, int32_t rows) {
    keys_[static_cast<size_t>(slot)] = key;
    slot_of_[IndexOf(shape_, key)] = slot;
    policy_.Inserted(slot, key, rows);
  }

  const ExpertTraceShape& shape_;
  EvictionPolicy& policy_;
  std::vector<ExpertKey> keys_;   // [slots]
  std::vector<bool> held_;        // [slots] by the open batch, not yet computed
  std::vector<int32_t> slot_of_;  // [layers, experts], -1: not there
  std::vector<int32_t> free_;     // the last one is taken next
  std::vector<int32_t> arrived_;  // slots of the open batch, in the order in which they are computed
  std::vector<ExpertKey> keys_of_hits_;
  size_t delivered_ = 0;  // of arrived_
  size_t hits_ = 0;       // the first of arrived_
  uint64_t reads_ = 0;
};

}  // namespace

std::vector<int32_t> LayersOf(const ExpertTrace& trace) {
  std::set<int32_t> layers;
  for (const ExpertTrace::Batch& batch : trace.batches()) layers.insert(batch.layer);
  return {layers.begin(), layers.end()};
}

ExpertUsage CountUsage(const ExpertTrace& trace) {
  ExpertUsage usage(trace.shape().layers, trace.shape().experts, 0);
  for (const ExpertTrace::Batch& batch : trace.batches()) usage.Add(batch.layer, trace.ExpertsOf(batch));
  return usage;
}

uint64_t ReplayReads(const ExpertTrace& trace, int64_t slots, EvictionPolicy& policy, std::span<const ExpertKey> warm) {
  ReplayedCache cache(trace.shape(), slots, policy);
  for (const ExpertKey key : warm) cache.Warm(key);
  for (const ExpertTrace::Batch& batch : trace.batches())
    cache.Batch(batch.layer, trace.ExpertsOf(batch), trace.RowsOf(batch));
  return cache.reads();
}

uint64_t StaticSetReads(const ExpertTrace& trace, int64_t slots, bool loaded) {
  std::vector<uint64_t> uses(ExpertsOfAllLayers(trace.shape()));
  for (const ExpertTrace::Batch& batch : trace.batches())
    for (const int32_t expert : trace.ExpertsOf(batch)) ++uses[IndexOf(trace.shape(), {batch.layer, expert})];
  std::sort(uses.rbegin(), uses.rend());
  const size_t kept = std::min(uses.size(), static_cast<size_t>(slots));
  uint64_t reads = std::accumulate(uses.begin() + static_cast<std::ptrdiff_t>(kept), uses.end(), uint64_t{0});
  for (size_t i = 0; i < kept && uses[i] > 0; ++i) reads += loaded ? 0 : 1;
  return reads;
}

uint64_t FewestReads(const ExpertTrace& trace, int64_t slots, std::span<const ExpertKey> warm) {
  // Positions in the trace at which each use is followed by the next one of the same expert; after the last, never.
  const uint64_t never = trace.uses();
  std::vector<uint64_t> next(trace.uses()), upcoming(ExpertsOfAllLayers(trace.shape()), never);
  std::vector<size_t> used;
  for (const ExpertTrace::Batch& batch : trace.batches())
    for (const int32_t expert : trace.ExpertsOf(batch)) used.push_back(IndexOf(trace.shape(), {batch.layer, expert}));
  for (size_t i = used.size(); i-- > 0;) {
    next[i] = upcoming[used[i]];
    upcoming[used[i]] = i;
  }
  std::set<std::pair<uint64_t, size_t>> held;  // (next use, expert)
  std::vector<bool> is_held(upcoming.size());
  for (const ExpertKey key : warm) {
    const size_t expert = IndexOf(trace.shape(), key);
    is_held[expert] = held.insert({upcoming[expert], expert}).second;
  }
  uint64_t reads = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    if (is_held[used[i]]) {
      held.erase({i, used[i]});
    } else {
      ++reads;
    }
    held.insert({next[i], used[i]});
    is_held[used[i]] = true;
    if (held.size() <= static_cast<size_t>(slots)) continue;
    const auto last = std::prev(held.end());
    is_held[last->second] = false;
    held.erase(last);
  }
  return reads;
}

}  // namespace deltafin
