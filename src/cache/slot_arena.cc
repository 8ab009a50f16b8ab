#include "cache/slot_arena.h"

#include <limits>

#include "base/units.h"

namespace deltafin {

Result<SlotArena> SlotArena::Create(int64_t slots, uint64_t slot_bytes) {
  if (slots < 1 || slots > std::numeric_limits<int32_t>::max() || slot_bytes < 1 || slot_bytes > kGiB)
    return Fail(ErrorCode::kInvalidArgument, "expert slots: expected at least one of at most ", FormatBytes(kGiB),
                ", got ", slots, " of ", slot_bytes, " bytes");
  SlotArena arena;
  arena.slots_ = slots;
  arena.stride_ = AlignUp(slot_bytes, 4 * kKiB);
  DFIN_TRY(arena.memory_, AlignedBuffer::Create(static_cast<uint64_t>(slots) * arena.stride_));
  arena.free_.reserve(static_cast<size_t>(slots));
  for (int64_t number = slots; number > 0; --number) arena.free_.push_back(static_cast<int32_t>(number - 1));
  return arena;
}

int32_t SlotArena::Take() {
  if (free_.empty()) return -1;
  const int32_t number = free_.back();
  free_.pop_back();
  return number;
}

}  // namespace deltafin
