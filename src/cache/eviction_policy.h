// EvictionPolicy: which expert leaves the cache when a slot is needed. Works on slot numbers; knows no bytes and no
// reads.
//
// Deterministic for a given sequence of calls. Thread-compatible (called under the cache's lock). No allocation after
// construction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/ids.h"

namespace deltafin {

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void Inserted(int32_t slot, ExpertKey key) = 0;  // a read for this expert was started into the slot
  virtual void Used(int32_t slot) = 0;                     // a batch wanted it
  virtual void Removed(int32_t slot) = 0;                  // evicted, or its read failed
  // A slot for which `evictable` is true, or -1 when there is none.
  virtual int32_t Victim(const std::function<bool(int32_t slot)>& evictable) const = 0;
};

// Least recently used within the layer that holds the most slots; among equally large layers the one that was used
// last, which comes up latest. Layers take turns in a fixed order, so least recently used over all layers would always
// throw away what is needed next, and hit nothing while the slots are fewer than the experts of one token.
std::unique_ptr<EvictionPolicy> CreateLayerLruPolicy(int64_t slots, int32_t layers);

}  // namespace deltafin
