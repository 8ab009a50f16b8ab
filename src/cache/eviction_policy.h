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

class ExpertUsage;

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The next batch begins: Used() and Inserted() are about it. `choices`: of all rows of the step, each expert of each
  // row counted; rows = choices / experts a token uses.
  virtual void Began(int32_t layer, int64_t choices) = 0;
  // A read for this expert was started into the slot: because `rows` rows of the batch want it, or, with 0, on a guess.
  virtual void Inserted(int32_t slot, ExpertKey key, int32_t rows) = 0;
  virtual void Used(int32_t slot, int32_t rows) = 0;  // so many rows of the batch want it
  virtual void Expected(int32_t slot) = 0;            // a guess: the next batch of its layer will want it
  virtual void Removed(int32_t slot) = 0;             // evicted, or its read failed
  // A slot for which `evictable` is true, or -1 when there is none.
  virtual int32_t Victim(const std::function<bool(int32_t slot)>& evictable) = 0;
};

// The expert with the least chance of being wanted by the next token, estimated from how often and how lately rows
// wanted it, in memory or not (frequency_policy.cc has the estimate). A prompt, whose steps want nearly every expert,
// is so many rows like any others: it washes nothing out. `prior`: counts of earlier runs, null: nothing is known; read
// now.
struct FrequencyPolicyOptions {
  int64_t slots = 0;
  int32_t layers = 0;
  int32_t experts = 0;  // of a layer
  int32_t experts_per_token = 0;
  const ExpertUsage* prior = nullptr;
};
std::unique_ptr<EvictionPolicy> CreateFrequencyPolicy(const FrequencyPolicyOptions& options);

// Least recently used within the layer that holds the most slots; among equally large layers the one that was used
// last, which comes up latest. Layers take turns in a fixed order, so least recently used over all layers would always
// throw away what is needed next, and hit nothing while the slots are fewer than the experts of one token. Kept to
// compare with.
std::unique_ptr<EvictionPolicy> CreateLayerLruPolicy(int64_t slots, int32_t layers);

}  // namespace deltafin
