// ExpertCache: routed experts in memory: a fixed number of slots between the drives and the kernels.
//
// One read per expert is in flight at most; a slot that is pinned or being filled is never evicted; results never
// depend on the number of slots or on the order in which reads end. The number of slots is fixed at creation (at least
// the floor), so the budget cannot be exceeded. A failed read frees its slot and is reported to whoever waits for it.
// Prefetch() brings experts that a later layer will probably want; a wrong guess costs a read at low priority and the
// place of the expert that would have been evicted next.
// After a drive hung, the expert is read once more into another slot if it has a copy elsewhere; the slot of the hung
// read stays out of use until the drive lets go of it.
// Thread rule: all public calls on the engine thread; completions arrive on the I/O thread and meet it at one lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "cache/eviction_policy.h"
#include "cache/expert_trace.h"
#include "cache/expert_usage.h"
#include "checkpoint/expert_source.h"

namespace deltafin {

class ExpertCache;

// Keeps one expert's bytes where they are. Move-only; released when it dies.
class ExpertPin {
 public:
  ExpertPin() = default;
  ExpertPin(ExpertPin&& other) noexcept;
  ExpertPin& operator=(ExpertPin&& other) noexcept;
  ~ExpertPin();

  const ExpertWeights& weights() const;
  ExpertKey key() const;

 private:
  friend class ExpertCache;
  ExpertPin(ExpertCache* cache, int32_t slot) : cache_(cache), slot_(slot) {}
  ExpertCache* cache_ = nullptr;
  int32_t slot_ = -1;
};

// In which order a batch hands out its experts.
enum class ExpertOrder : uint8_t {
  kArrival,    // as they come, what is in memory first
  kAscending,  // as they were asked for; only the next few of them are held or on their way
};

struct ExpertCacheCounters {
  uint64_t hits = 0;    // wanted and already in memory (or on its way)
  uint64_t misses = 0;  // wanted and not yet in memory: read on demand unless the batch is given up
  uint64_t evictions = 0;
  // Payload of the reads that succeeded: of those that a batch asked for, and of prefetches that the next batch of
  // their layer wanted (late: not wholly there by then; part of useful) or did not. Prefetches of which nothing is
  // known yet are in none of them.
  uint64_t demand_bytes = 0;
  uint64_t prefetch_useful_bytes = 0;
  uint64_t prefetch_late_bytes = 0;
  uint64_t prefetch_wasted_bytes = 0;
  uint64_t warm_bytes = 0;  // of Warm(), wanted since or not; in none of the others
  uint64_t hung = 0;        // reads given up because a drive hung
  double wait_seconds = 0;  // time Next() waited for reads
};

struct ExpertCacheOptions {
  int64_t slots = 0;  // >= ExpertCache::Floor()
  // Largest Begin(): sizes the internal tables, so that nothing is allocated later.
  int64_t max_batch = 0;  // experts of a layer
  // A batch evicts nothing for more of its reads while so many of its experts are on their way or wait to be taken:
  // those that are done with make room instead. Keeps a long prompt from emptying the cache. 0: no such limit.
  int64_t most_in_transit = 0;
  // Most slots that hold, or wait for, prefetched experts that no batch has asked for. At most slots - 2; the engine
  // takes half of slots - Floor(). 0 turns Prefetch() off.
  int64_t prefetch_slots = 0;
  ExpertUsage* usage = nullptr;        // counts what batches want; outlives the cache
  ExpertTraceWriter* trace = nullptr;  // records what batches want; outlives the cache
};

class ExpertCache {
 public:
  // Fewest slots with which a layer can run: the experts of one token; where experts have copies, as many again, for
  // when all of them were being read from a drive that hangs.
  static int64_t Floor(int64_t experts_per_token, bool copies = false) { return experts_per_token * (copies ? 2 : 1); }
  // What ExpertCacheOptions::most_in_transit should be: all that a step of one row asks for, so that its drives never
  // wait for a slot. With half as many, four emulated drives read 94 % of their sum instead of 95
  // (docs/PERFORMANCE.md).
  static int64_t Transit(int64_t experts_per_token) { return experts_per_token; }
  // Memory of one slot of `source`, rounded to whole 4 KiB.
  static uint64_t SlotBytes(const ExpertSource& source);

  // kInvalidArgument for sizes that make no sense, kOutOfMemory when the slots cannot be mapped. `source` and `clock`
  // outlive the cache.
  static Result<std::unique_ptr<ExpertCache>> Create(ExpertSource& source, const ExpertCacheOptions& options,
                                                     std::unique_ptr<EvictionPolicy> policy, const Clock& clock);
  // Every pin must be dead. Cancels reads that have not started and waits for the others, hung ones included.
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  // Starts the batch of one layer: `experts` ascending and distinct, at most max_batch; `rows` of the step want each of
  // them (empty: one each), which only tells the eviction policy what is popular. Hits are held, as many misses
  // as there are free slots start being read at once, the others as slots come free. Begin does not wait, so work that
  // needs no routed expert can run before the first Next(). A batch must be finished (Next() until done) or abandoned
  // (Abandon()) before the next.
  void Begin(int32_t layer, std::span<const int32_t> experts, std::span<const int32_t> rows = {},
             ExpertOrder order = ExpertOrder::kArrival);

  // The next expert of the batch that is ready, in the batch's order, and its position in `experts`. Waits when none
  // is. Exactly `experts.size()` calls succeed. The pin should die before the next call, or slots may run out: with all
  // slots pinned and none in flight Next() is a programmer error. kIo, kCorrupt, kDeadline (a drive hangs), kCancelled:
  // the batch must then be abandoned. A cancellation is noticed within 50 ms, also while a read hangs. Allocates
  // nothing unless it fails.
  struct Ready {
    ExpertPin pin;
    int32_t position = 0;
  };
  Result<Ready> Next(CancelToken cancel);
  // Gives up the rest of the batch, and what is being prefetched, without waiting: what was not handed to a drive yet
  // is cancelled; what was stays cached. A later batch that wants an expert on its way joins its read, which is made
  // again if it fails. Does nothing when no batch is open.
  void Abandon();

  // Starts reading those of `experts` that are not in memory, in this order, at a priority below that of every batch,
  // as far as there are slots that the open batch does not need. The next Begin() of `layer` joins those that it wants
  // and cancels the others. Does not wait. Allocates nothing. Failures are silent: whoever wants the expert reads it
  // again.
  void Prefetch(int32_t layer, std::span<const int32_t> experts);
  // Cancels what is being prefetched, without waiting.
  void DropPrefetches();
  // From now on reads `experts`, in this order, into slots that nobody has, at background priority, at most `at_once`
  // (0 to slots - Floor()) at a time; evicts nothing, and ends when no slot is free or a read fails. A batch that wants
  // one of them on its way waits for it as for its own. Goes on between batches, on the I/O thread. Once per cache.
  void Warm(std::vector<ExpertKey> experts, int64_t at_once);
  // Starts no more of them and cancels those on their way, without waiting.
  void StopWarming();
  // Whether the expert is in memory or on its way. If so, it is not the next to be evicted: somebody thinks of it.
  bool Keep(ExpertKey key);

  ExpertCacheCounters counters() const;
  int64_t slots() const;
  int64_t prefetch_slots() const;
  uint64_t record_bytes() const;  // payload of one expert
  int64_t hung() const;           // slots that a hung drive may still write into
  int64_t resident() const;       // slots holding an expert

 private:
  friend class ExpertPin;
  struct State;
  explicit ExpertCache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deltafin
