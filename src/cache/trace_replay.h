// trace_replay: what a cache of some size would have read for a recorded trace: by an eviction policy's real code, by
// the best fixed choice of experts, and at the very least.
//
// Counts records, not bytes and not time. Batches take slots as ExpertCache does (hits are held, misses are read in
// order, an expert is let go once it was computed), as if every read ended at once and nothing was prefetched. Pure
// functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/eviction_policy.h"
#include "cache/expert_trace.h"
#include "cache/expert_usage.h"

namespace deltafin {

// The layers that a trace has experts for.
std::vector<int32_t> LayersOf(const ExpertTrace& trace);
// How often the steps of a trace wanted each expert.
ExpertUsage CountUsage(const ExpertTrace& trace);

// Records read with `slots` slots, at least one. `warm` (at most as many) are there before the first step and not
// counted. `policy` is new.
uint64_t ReplayReads(const ExpertTrace& trace, int64_t slots, EvictionPolicy& policy,
                     std::span<const ExpertKey> warm = {});

// The most used experts of this very trace have a slot each for good; all others are read for every use. Each of the
// former is read once, or, when `loaded` before, not at all.
uint64_t StaticSetReads(const ExpertTrace& trace, int64_t slots, bool loaded);

// No cache of so many slots could read less, knowing the future (Belady): what is wanted again last leaves, or does
// not stay at all. `warm`: as above.
uint64_t FewestReads(const ExpertTrace& trace, int64_t slots, std::span<const ExpertKey> warm = {});

}  // namespace deltafin
