// SlotIndex: which slot holds an expert. A hash table of fixed size (open addressing, linear probing), because the
// standard ones allocate when something is put in.
//
// Thread-compatible: the cache calls it under its lock.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace deltafin {

class SlotIndex {
 public:
  // Room for `slots` experts, at most half full.
  explicit SlotIndex(int64_t slots)
      : entries_(std::bit_ceil(static_cast<size_t>(slots) * 2)), shift_(64 - std::countr_zero(entries_.size())) {}

  // -1 when no slot holds it.
  int32_t Find(ExpertKey key) const { return entries_[Position(key)].slot; }

  void Insert(ExpertKey key, int32_t slot) {
    Entry& entry = entries_[Position(key)];
    DFIN_CHECK(entry.slot < 0, "expert is in a slot already");
    entry = {key, slot};
  }

  void Erase(ExpertKey key) {
    size_t hole = Position(key);
    DFIN_CHECK(entries_[hole].slot >= 0, "expert is in no slot");
    // Later entries of the same run move up, so that no search stops early at the hole.
    for (size_t i = Next(hole); entries_[i].slot >= 0; i = Next(i)) {
      const size_t home = Home(entries_[i].key);
      const bool stays = hole <= i ? (hole < home && home <= i) : (hole < home || home <= i);
      if (stays) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = {};
  }

 private:
  struct Entry {
    ExpertKey key;
    int32_t slot = -1;
  };

  size_t Home(ExpertKey key) const {
    // Fibonacci hashing: layer and expert are small numbers, and the product spreads them over the high bits.
    return static_cast<size_t>((std::hash<ExpertKey>()(key) * uint64_t{0x9E3779B97F4A7C15}) >> shift_);
  }
  size_t Next(size_t i) const { return (i + 1) & (entries_.size() - 1); }
  // Where `key` is, or would be put.
  size_t Position(ExpertKey key) const {
    size_t i = Home(key);
    while (entries_[i].slot >= 0 && entries_[i].key != key) i = Next(i);
    return i;
  }

  std::vector<Entry> entries_;  // a power of two, at least 2
  int shift_;
};

}  // namespace deltafin
