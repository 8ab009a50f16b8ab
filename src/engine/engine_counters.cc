// Differences of what an engine counts.
#include "engine/engine.h"

namespace deltafin {

EngineCounters EngineCounters::Since(const EngineCounters& earlier) const {
  EngineCounters d = *this;
  d.layer_passes -= earlier.layer_passes;
  d.experts_distinct -= earlier.experts_distinct;
  d.expert_bytes_demand -= earlier.expert_bytes_demand;
  d.expert_bytes_warm -= earlier.expert_bytes_warm;
  d.expert_bytes_prefetch_useful -= earlier.expert_bytes_prefetch_useful;
  d.expert_bytes_prefetch_late -= earlier.expert_bytes_prefetch_late;
  d.expert_bytes_prefetch_wasted -= earlier.expert_bytes_prefetch_wasted;
  d.dense_bytes_loaded -= earlier.dense_bytes_loaded;
  d.dense_bytes_streamed -= earlier.dense_bytes_streamed;
  d.cache_hits -= earlier.cache_hits;
  d.cache_misses -= earlier.cache_misses;
  d.reads_verified -= earlier.reads_verified;
  d.reads_mismatched -= earlier.reads_mismatched;
  d.expert_wait_seconds -= earlier.expert_wait_seconds;
  d.dense_wait_seconds -= earlier.dense_wait_seconds;
  d.fetch.experts -= earlier.fetch.experts;
  d.fetch.bytes -= earlier.fetch.bytes;
  d.fetch.fetched_again -= earlier.fetch.fetched_again;
  d.fetch.seconds -= earlier.fetch.seconds;
  d.io.reads -= earlier.io.reads;
  d.io.payload_bytes -= earlier.io.payload_bytes;
  d.io.device_bytes -= earlier.io.device_bytes;
  d.io.errors -= earlier.io.errors;
  d.io.cancelled -= earlier.io.cancelled;
  d.lookahead_wanted -= earlier.lookahead_wanted;
  d.lookahead_predicted -= earlier.lookahead_predicted;
  d.io.cancelled_guess_bytes -= earlier.io.cancelled_guess_bytes;
  d.io.busy_seconds -= earlier.io.busy_seconds;
  return d;
}

LayerLookahead LayerLookahead::Since(const LayerLookahead& earlier) const {
  return {layer, wanted - earlier.wanted, predicted - earlier.predicted, read_ahead - earlier.read_ahead,
          wrong - earlier.wrong};
}

}  // namespace deltafin
