// PackSource: the experts that a model folder's shards hold, in the order of their bytes, and the way to their records.
//
// Keeps no shard open, so that a shard that was replaced gives its room back. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/compact_scales.h"
#include "io/direct_file.h"
#include "io/io_scheduler.h"
#include "pack/moved_experts.h"
#include "spec/model_spec.h"

namespace deltafin {

struct SourceExpert {
  uint32_t position = 0;  // layer by layer, as in ExpertSetIndex::entries
  int32_t shard = 0;
  uint64_t offset = 0;
  ExpertRecordLayout layout;
};

struct PackSource {
  std::string folder;
  ModelSpec spec;
  uint64_t fingerprint = 0;           // of the checkpoint: the same while shards arrive or give up their experts
  uint64_t model_id = 0;              // ExpertModelId(); 0 while shards that it needs are missing
  std::vector<std::string> shards;    // paths
  std::vector<SourceExpert> experts;  // those that are there, by shard and offset
  std::vector<MovedShard> moved;      // shards that gave up theirs

  static Result<PackSource> Open(const std::string& model, const std::string& state_folder, const std::string& io,
                                 CancelToken cancel);

  // Whether a set with this id may hold the experts of this model.
  bool MayBe(uint64_t set_model_id) const { return model_id == 0 || set_model_id == 0 || model_id == set_model_id; }

  ExpertGeometry geometry() const { return ExpertGeometry(spec); }
  int64_t first_moe_layer() const { return static_cast<int64_t>(spec.layers.size()) - spec.num_moe_layers; }
  size_t positions() const { return static_cast<size_t>(spec.num_moe_layers * spec.num_experts); }
  ExpertKey Key(uint32_t position) const;
  // Null when the shards do not hold it.
  const SourceExpert* Find(uint32_t position) const;
  std::string ShardName(int32_t shard) const;

 private:
  std::vector<uint32_t> by_position_;  // index into experts, or UINT32_MAX
};

// One expert of a shard, where `buffer` took the read of RecordBytes at offset: widened, so its start depends on it.
ExpertWeights ViewSource(const PackSource& source, const SourceExpert& expert, uint64_t alignment,
                         const std::byte* buffer);
// kCorrupt naming layer, expert, matrix, row and file for a scale of 255.
Status CheckScales(const PackSource& source, const SourceExpert& expert, const ExpertWeights& weights);

// A packed record made again from the shards. `out` has `bytes` (a whole record with padding). kNotFound when the
// shards do not hold it.
Status RecordFromShards(const PackSource& source, IoScheduler& io, uint32_t position, const ScaleBases& bases,
                        std::byte* out, uint64_t bytes);

}  // namespace deltafin
