// moved_experts: what emptied shards say about where their experts went, and that a set really has them.
//
// `pack --move` leaves a note in the header of every shard that it empties. So a pack that does not know of those
// experts (other folders, a journal that was lost) can be refused before it makes half a set of what is left. Functions
// without state; read headers and the model's index. Errors name the shard, the set and its folders.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "spec/model_spec.h"

namespace deltafin {

struct MovedShard {
  std::string path;
  std::string set;                   // its id, 16 hexadecimal digits, as the header says
  std::vector<std::string> folders;  // of the set when the shard was emptied; none where the header does not say
  std::vector<uint32_t> positions;   // of the experts that it gave up, layer by layer as in ExpertSetIndex::entries
};

// Of `shards`, those that were emptied. `model` is the folder of their index.
Result<std::vector<MovedShard>> FindMovedShards(const std::string& model, const ModelSpec& spec,
                                                const std::vector<std::string>& shards, CancelToken cancel);

// The set that experts are asked of.
struct MoveTarget {
  std::string set;      // id
  std::string records;  // the file that says what the set has: a journal or a manifest
  std::vector<std::string> folders;
  std::string model, state_folder;  // where a note may say which folders another set has
  std::function<bool(uint32_t position)> has;
};

// kCorrupt when a shard gave up experts that the target does not have: they were moved to another set, or what says
// where they are was lost.
Status CheckMovedExperts(const std::vector<MovedShard>& moved, const MoveTarget& target);

// How many of the experts that `shard` gave up `has` does not know.
uint64_t CountLost(const MovedShard& shard, const std::function<bool(uint32_t position)>& has);

}  // namespace deltafin
