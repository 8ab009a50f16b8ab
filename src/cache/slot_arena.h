// SlotArena: a fixed number of equal slots in one block of huge-page memory. It never grows, so a budget that was
// counted in slots cannot be exceeded.
//
// Hands out slot numbers, lowest first, so that memory is committed only as slots are first used. Knows nothing of
// experts. Thread-compatible: the cache calls it under its lock. No allocation after creation.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"

namespace deltafin {

class SlotArena {
 public:
  // Slots lie `slot_bytes` rounded up to 4 KiB apart and start at a multiple of 4 KiB. kInvalidArgument, kOutOfMemory.
  static Result<SlotArena> Create(int64_t slots, uint64_t slot_bytes);

  int64_t slots() const { return slots_; }
  uint64_t stride() const { return stride_; }
  MutBytes slot(int32_t number) const {
    return {memory_.data() + static_cast<uint64_t>(number) * stride_, static_cast<size_t>(stride_)};
  }

  // A slot that nobody has, or -1.
  int32_t Take();
  void Give(int32_t number) { free_.push_back(number); }

 private:
  SlotArena() = default;

  AlignedBuffer memory_;
  int64_t slots_ = 0;
  uint64_t stride_ = 0;
  std::vector<int32_t> free_;  // last one is taken next
};

}  // namespace deltafin
