// What ExpertCache does to fill slots that nobody has asked for yet.
//
// Whoever finds that a warm read may be started becomes the pump, one thread at a time: the engine thread at the
// beginning, then the I/O thread when a read ended. A source that answers inside Fetch() finds the pump taken, so
// nothing nests.
#include "base/check.h"
#include "cache/expert_cache_state.h"

namespace deltafin {

bool ExpertCache::State::BeginPump() {
  if (pumping || warm_next >= warm.size() || warm_reading >= warm_at_once || !pending.empty()) return false;
  pumping = true;
  return true;
}

void ExpertCache::State::PumpWarm() {
  for (;;) {
    int32_t number = -1;
    {
      const std::lock_guard lock(mutex);
      if (!TakeSlotForWarm(&number)) {
        pumping = false;
        changed.notify_all();  // the destructor waits for it
        return;
      }
    }
    Fetch(number, IoPriority::kBackground);
  }
}

bool ExpertCache::State::TakeSlotForWarm(int32_t* number) {
  while (warm_next < warm.size() && index.Find(warm[warm_next]) >= 0) ++warm_next;  // a batch was faster
  // What the open batch is about to read itself must not be taken; the reads that it waits for pump again.
  if (warm_next >= warm.size() || warm_reading >= warm_at_once || !pending.empty()) return false;
  *number = arena.Take();
  if (*number < 0) {
    warm_next = warm.size();
    return false;
  }
  const ExpertKey key = warm[warm_next++];
  slot(*number) = {ExpertSlot::Phase::kReading, key, {}, source.NewTag(), 0, -1, ExpertSlot::Prefetch::kWarm};
  index.Insert(key, *number);
  policy->Inserted(*number, key, /*rows=*/0);
  ++reading;
  ++warm_reading;
  return true;
}

void ExpertCache::Warm(std::vector<ExpertKey> experts, int64_t at_once) {
  State& s = *state_;
  s.to_raise.reserve(s.to_raise.capacity() + static_cast<size_t>(at_once));
  {
    const std::lock_guard lock(s.mutex);
    DFIN_CHECK(s.warm.empty() && at_once >= 0 && at_once <= slots(), "a cache is warmed once");
    s.warm = std::move(experts);
    s.warm_at_once = at_once;
    if (!s.BeginPump()) return;
  }
  s.PumpWarm();
}

void ExpertCache::StopWarming() {
  State& s = *state_;
  std::vector<IoTag> to_cancel;
  {
    const std::lock_guard lock(s.mutex);
    s.warm_next = s.warm.size();
    for (const ExpertSlot& slot : s.slots)
      if (slot.prefetch == ExpertSlot::Prefetch::kWarm && slot.phase == ExpertSlot::Phase::kReading &&
          slot.position < 0)
        to_cancel.push_back(slot.tag);
  }
  for (const IoTag tag : to_cancel) s.source.Cancel(tag);
}

}  // namespace deltafin
