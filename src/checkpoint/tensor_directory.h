// TensorDirectory: a numbered place for every tensor that the spec calls for, filled from the index and the headers.
//
// A slot is a number, so that opening 497,220 tensors keeps no names: dense tensors first (layer by layer, then the
// globals), then the experts' parts. Filled once while a checkpoint is opened; not thread-safe. Errors name tensor and
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "spec/model_spec.h"
#include "spec/tensor_table.h"

namespace deltafin {

class TensorDirectory {
 public:
  explicit TensorDirectory(const ModelSpec& spec);

  // Slots below dense_count() are dense tensors.
  int64_t slot_count() const { return static_cast<int64_t>(index_shard_.size()); }
  int64_t dense_count() const { return dense_count_; }
  int64_t expert_count() const { return expert_count_; }

  struct Lookup {
    enum class Kind : uint8_t { kText, kVision, kUnknown } kind = Kind::kUnknown;
    int64_t slot = -1;  // kText
  };
  Lookup Find(std::string_view name) const;
  std::string Name(int64_t slot) const;
  const TensorSpec& Spec(int64_t slot) const;
  // The layer of a dense slot; -1 for globals.
  int LayerOf(int64_t dense_slot) const;
  ExpertKey ExpertAt(int64_t position) const;  // position: 0 .. expert_count() - 1
  int64_t ExpertPosition(ExpertKey key) const;

  // What the index says: the shard of a slot, or -1.
  int32_t index_shard(int64_t slot) const { return index_shard_[static_cast<size_t>(slot)]; }
  void SetIndexShard(int64_t slot, int32_t shard) { index_shard_[static_cast<size_t>(slot)] = shard; }

  // What a header says. kCorrupt: another dtype or shape than the spec's, or a tensor that was placed before.
  Status Place(int64_t slot, int32_t shard, const TensorEntry& entry, uint64_t data_start, const std::string& what);
  bool placed(int64_t slot) const { return place_shard_[static_cast<size_t>(slot)] >= 0; }

  // Tensors and experts that are not (wholly) placed have shard -1. kUnsupported when the six tensors of an expert are
  // not back to back in one file.
  std::vector<TensorPlace> DensePlaces() const;
  Result<std::vector<ExpertPlace>> ExpertPlaces(const std::vector<std::string>& shards) const;

 private:
  struct Unit {
    std::vector<TensorSpec> tensors;
    std::vector<uint16_t> by_name;  // positions in `tensors`, sorted by name
    int64_t first_slot = 0;
  };
  int64_t FindDense(const Unit& unit, std::string_view name) const;
  Result<ExpertPlace> PlaceOfExpert(int64_t position, const std::vector<std::string>& shards) const;

  std::vector<Unit> units_;  // [layers + 1], the last one holds the globals
  std::array<TensorSpec, kExpertParts> expert_parts_;
  int64_t first_moe_layer_ = 0;
  int64_t num_experts_ = 0;
  int64_t dense_count_ = 0;
  int64_t expert_count_ = 0;
  std::vector<int32_t> unit_of_slot_;  // dense slots

  std::vector<int32_t> index_shard_;
  std::vector<int32_t> place_shard_;
  std::vector<uint64_t> place_offset_;
  std::vector<Shape> dense_shape_;  // as found: A_log may be padded
};

}  // namespace deltafin
