// expert_cache_state.h: what an ExpertCache holds: its slots, the open batch, the guesses. Only for the cache's own
// files: expert_cache.cc (batches) and expert_cache_prefetch.cc (what is read before a batch asks for it).
// Everything after the mutex is under it; the rest belongs to the engine thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cache/expert_cache.h"
#include "cache/slot_arena.h"
#include "cache/slot_index.h"
#include "io/fixed_queue.h"

namespace deltafin {

struct ExpertSlot {
  // kHung: the read was given up, but the drive may still write into the slot.
  enum class Phase : uint8_t { kFree, kReading, kReady, kHung };
  Phase phase = Phase::kFree;
  ExpertKey key;
  ExpertWeights weights;  // of a ready slot
  IoTag tag = 0;          // of the read
  int32_t pins = 0;
  int32_t position = -1;  // in the open batch, while the batch waits for this slot or has yet to take it
  // Of a slot that Prefetch() took: kGuess until the next batch of its layer begins. kWarm: Warm() took it, until its
  // read ends.
  enum class Prefetch : uint8_t { kNo, kGuess, kWanted, kUnwanted, kWarm };
  Prefetch prefetch = Prefetch::kNo;
};

// All positions of the open batch that are wanted and were not delivered are in exactly one place: `pending` (no slot
// yet), a reading slot, or a ready slot (which `arrived` lists in order of arrival). A slot with a position is never
// evicted, so a hit survives until it is delivered. Everything is wanted from the start when the batch takes experts as
// they arrive. When it takes them ascending, only Window() of them are wanted at a time, so few that the next one in
// order always finds a slot however many later ones are there already.
// Guesses are never evicted either, but there are fewer of them than slots by at least two. Progress needs no more than
// that: with nothing arrived and nothing being read, every other slot is either evictable or pinned.
struct ExpertCache::State {
  State(ExpertSource& source_in, SlotArena arena_in, std::unique_ptr<EvictionPolicy> policy_in,
        const ExpertCacheOptions& options, const Clock& clock_in)
      : source(source_in),
        clock(clock_in),
        usage(options.usage),
        trace(options.trace),
        most_guesses(static_cast<size_t>(options.prefetch_slots)),
        most_in_transit(options.most_in_transit > 0 ? options.most_in_transit : options.max_batch),
        policy(std::move(policy_in)),
        arena(std::move(arena_in)),
        slots(static_cast<size_t>(arena.slots())),
        index(arena.slots()),
        position_slot(static_cast<size_t>(options.max_batch)),
        position_tries(static_cast<size_t>(options.max_batch)),
        pending(options.max_batch),
        arrived(options.max_batch) {
    experts.reserve(static_cast<size_t>(options.max_batch));
    rows.reserve(static_cast<size_t>(options.max_batch));
    guesses.reserve(most_guesses);
    to_raise.reserve(most_guesses);
    to_cancel.reserve(2 * most_guesses);  // wanted ones of a batch that is given up, and guesses for later ones
  }

  ExpertSlot& slot(int32_t number) { return slots[static_cast<size_t>(number)]; }
  int32_t RowsOf(int32_t position) const { return rows.empty() ? 1 : rows[static_cast<size_t>(position)]; }
  ExpertKey KeyOf(int32_t position) const { return {layer, experts[static_cast<size_t>(position)]}; }
  void Want(int32_t position);
  void WantMore();
  size_t Window() const;
  bool NextIsReady();
  // Of the guesses for the layer of the open batch: which it wants, and which not.
  void JudgeGuesses();
  bool TakeSlotForGuess(ExpertKey key, int32_t* number);
  void ForgetGuess(int32_t number);
  // Whether a warm read may be started; if so, the caller has to call PumpWarm(), not under the lock.
  bool BeginPump();
  void PumpWarm();
  bool TakeSlotForWarm(int32_t* number);
  // Starts as many pending reads as there are slots.
  void StartReads();
  // Not under the lock: a source may answer at once.
  void Fetch(int32_t number, IoPriority priority);
  bool TakeSlotForNext(int32_t* number);
  int32_t TakeSlot(bool may_evict = true);
  void Evict(int32_t number);
  void Fetched(int32_t number, Result<ExpertWeights> result);
  void CountRead(ExpertSlot& filled);
  void FetchFailed(int32_t number, Error error);
  void LoseSlot(int32_t number, bool is_hung);
  Ready Deliver(ExpertCache* cache);
  void Release(int32_t number);
  void Close();

  ExpertSource& source;
  const Clock& clock;
  ExpertUsage* const usage;
  ExpertTraceWriter* const trace;
  const size_t most_guesses;
  const int64_t most_in_transit;
  // Of the engine thread: what Want() and JudgeGuesses() leave to be done without the lock.
  std::vector<IoTag> to_raise, to_cancel;

  mutable std::mutex mutex;
  std::condition_variable changed;  // a read ended
  // Under the mutex.
  const std::unique_ptr<EvictionPolicy> policy;
  SlotArena arena;
  std::vector<ExpertSlot> slots;
  SlotIndex index;  // of reading and ready slots
  int64_t resident = 0;
  int64_t reading = 0;
  int64_t hung = 0;
  std::vector<int32_t> guesses;  // slots of kGuess
  int64_t unwanted = 0;          // slots of kUnwanted: being read although nobody wants it any more
  // What Warm() was given, and how far it is.
  std::vector<ExpertKey> warm;
  size_t warm_next = 0;
  int64_t warm_at_once = 0;
  int64_t warm_reading = 0;
  bool pumping = false;  // a thread is in PumpWarm()
  // The open batch.
  bool open = false;
  int32_t layer = 0;
  IoTag tag = 0;  // another one for every batch
  std::vector<int32_t> experts;
  std::vector<int32_t> rows;            // that want each; empty: one each
  std::vector<int32_t> position_slot;   // [max_batch], -1 while pending
  std::vector<uint8_t> position_tries;  // [max_batch], reads started
  ExpertOrder order = ExpertOrder::kArrival;
  size_t wanted = 0;  // positions below it
  size_t delivered = 0;
  int64_t in_transit = 0;  // positions that took a slot and were not delivered
  FixedQueue pending;
  FixedQueue arrived;
  std::optional<Error> error;  // the first one of the batch

  ExpertCacheCounters counters;
};

}  // namespace deltafin
