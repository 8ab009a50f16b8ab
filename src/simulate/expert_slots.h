// ExpertSlots: the expert cache of a simulation: which experts are in memory or on their way, by the eviction policies
// of the engine itself (cache/eviction_policy.h) or by plain LRU over all layers.
//
// Without slots (transient) nothing is kept: experts are there until their layer is over. Keys are layer * experts +
// expert. The rules of slots are those of cache/trace_replay: hits are held, an expert is let go once it was computed,
// and what is on its way is never evicted. Deterministic. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/eviction_policy.h"
#include "simulate/model_shape.h"

namespace deltafin::simulate {

enum class CachePolicy : uint8_t { kFrequency, kLayerLru, kLru };
Result<CachePolicy> ParseCachePolicy(std::string_view text);
std::string_view ToString(CachePolicy policy);

// The experts of all layers in one order of last use; of those that may leave the oldest does.
std::unique_ptr<EvictionPolicy> CreatePlainLru(int64_t slots);
std::unique_ptr<EvictionPolicy> CreatePolicy(CachePolicy policy, const ModelShape& shape, int64_t slots);

class ExpertSlots {
 public:
  enum class State : uint8_t { kAbsent, kOnTheWay, kThere };

  // 0 slots: transient.
  ExpertSlots(const ModelShape& shape, int64_t slots, CachePolicy policy);

  int64_t slots() const { return slots_; }
  int64_t free_slots() const { return static_cast<int64_t>(free_.size()); }
  State state(int64_t key) const { return state_[static_cast<size_t>(key)]; }

  void Begin(int32_t layer, int64_t choices);
  // A batch wants an expert that is there or on its way: it stays until Release.
  void Use(int64_t key, int32_t rows);
  // Its read begins; rows 0: on a guess. False when no slot can be had.
  bool Insert(int64_t key, int32_t rows, bool may_evict);
  void Arrived(int64_t key);
  void Release(int64_t key);  // computed
  void Forget(int64_t key);   // its read was given up, or it was transient
  // Fills free slots before the clock starts.
  bool Warm(int64_t key);

 private:
  ExpertKey KeyOf(int64_t key) const;

  const int64_t slots_, experts_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<State> state_;      // [keys]
  std::vector<int32_t> slot_of_;  // [keys]
  std::vector<int64_t> key_of_;   // [slots]
  std::vector<uint8_t> held_;     // [slots]
  std::vector<int32_t> free_;
};

}  // namespace deltafin::simulate
