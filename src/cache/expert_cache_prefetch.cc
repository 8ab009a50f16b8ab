// What ExpertCache does about experts that are read before a batch asks for them.
#include <algorithm>

#include "cache/expert_cache_state.h"

namespace deltafin {

void ExpertCache::State::JudgeGuesses() {
  for (size_t i = 0; i < guesses.size();) {
    ExpertSlot& guess = slot(guesses[i]);
    if (guess.key.layer != layer) {
      ++i;
      continue;
    }
    // Experts ascend; those that are not wanted yet have no position.
    const bool wanted = guess.position >= 0 || std::binary_search(experts.begin(), experts.end(), guess.key.expert);
    const bool is_there = guess.phase == ExpertSlot::Phase::kReady;
    guess.prefetch = wanted ? ExpertSlot::Prefetch::kWanted : ExpertSlot::Prefetch::kUnwanted;
    if (is_there) {
      (wanted ? counters.prefetch_useful_bytes : counters.prefetch_wasted_bytes) += source.record_bytes();
      guess.prefetch = ExpertSlot::Prefetch::kNo;  // from now on an expert like any other
    } else {
      (wanted ? to_raise : to_cancel).push_back(guess.tag);
      unwanted += wanted ? 0 : 1;
    }
    guesses[i] = guesses.back();
    guesses.pop_back();
  }
}

bool ExpertCache::State::TakeSlotForGuess(ExpertKey key, int32_t* number) {
  const std::lock_guard lock(mutex);
  // Slots that a drive holds on to count, or guesses that hang could take those that batches need.
  const auto held = static_cast<int64_t>(guesses.size()) + unwanted + hung;
  if (held >= static_cast<int64_t>(most_guesses) || !pending.empty() || index.Find(key) >= 0) return false;
  *number = TakeSlot();
  if (*number < 0) return false;
  slot(*number) = {ExpertSlot::Phase::kReading, key, {}, source.NewTag(), 0, -1, ExpertSlot::Prefetch::kGuess};
  guesses.push_back(*number);
  index.Insert(key, *number);
  policy->Inserted(*number, key, /*rows=*/0);
  ++reading;
  return true;
}

void ExpertCache::State::ForgetGuess(int32_t number) {
  const auto it = std::find(guesses.begin(), guesses.end(), number);
  if (it == guesses.end()) return;
  *it = guesses.back();
  guesses.pop_back();
}

void ExpertCache::State::CountRead(ExpertSlot& filled) {
  const uint64_t bytes = source.record_bytes();
  switch (filled.prefetch) {
    case ExpertSlot::Prefetch::kNo:
      counters.demand_bytes += bytes;
      break;
    case ExpertSlot::Prefetch::kGuess:
      return;  // counted when it is judged
    case ExpertSlot::Prefetch::kWanted:
      counters.prefetch_useful_bytes += bytes;
      counters.prefetch_late_bytes += bytes;
      break;
    case ExpertSlot::Prefetch::kUnwanted:
      --unwanted;
      counters.prefetch_wasted_bytes += bytes;
      break;
    case ExpertSlot::Prefetch::kWarm:
      --warm_reading;
      counters.warm_bytes += bytes;
      break;
  }
  filled.prefetch = ExpertSlot::Prefetch::kNo;
}

void ExpertCache::Prefetch(int32_t layer, std::span<const int32_t> experts) {
  State& s = *state_;
  for (const int32_t expert : experts) {
    int32_t number = -1;
    if (s.TakeSlotForGuess({layer, expert}, &number)) s.Fetch(number, IoPriority::kGuess);
  }
}

void ExpertCache::DropPrefetches() {
  State& s = *state_;
  s.to_cancel.clear();
  {
    const std::lock_guard lock(s.mutex);
    for (ExpertSlot& slot : s.slots) {
      const bool ours = slot.prefetch == ExpertSlot::Prefetch::kWanted || slot.prefetch == ExpertSlot::Prefetch::kGuess;
      if (ours && slot.phase == ExpertSlot::Phase::kReading) s.to_cancel.push_back(slot.tag);
    }
  }
  for (const IoTag tag : s.to_cancel) s.source.Cancel(tag);
}

}  // namespace deltafin
