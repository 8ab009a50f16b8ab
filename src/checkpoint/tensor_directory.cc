#include "checkpoint/tensor_directory.h"

#include <algorithm>
#include <numeric>

namespace deltafin {

TensorDirectory::TensorDirectory(const ModelSpec& spec)
    : expert_parts_(ExpertTensors(spec)), num_experts_(spec.num_experts) {
  const auto layers = static_cast<int>(spec.layers.size());
  first_moe_layer_ = layers - spec.num_moe_layers;
  for (int u = 0; u <= layers; ++u) {
    Unit unit;
    unit.tensors = u < layers ? LayerTensors(spec, u) : GlobalTensors(spec);
    unit.first_slot = dense_count_;
    unit.by_name.resize(unit.tensors.size());
    std::iota(unit.by_name.begin(), unit.by_name.end(), uint16_t{0});
    std::sort(unit.by_name.begin(), unit.by_name.end(),
              [&](uint16_t a, uint16_t b) { return unit.tensors[a].name < unit.tensors[b].name; });
    dense_count_ += static_cast<int64_t>(unit.tensors.size());
    unit_of_slot_.resize(static_cast<size_t>(dense_count_), u);
    units_.push_back(std::move(unit));
  }
  expert_count_ = spec.num_moe_layers * spec.num_experts;
  const auto slots = static_cast<size_t>(dense_count_ + expert_count_ * kExpertParts);
  index_shard_.assign(slots, -1);
  place_shard_.assign(slots, -1);
  place_offset_.assign(slots, 0);
  dense_shape_.resize(static_cast<size_t>(dense_count_));
}

int64_t TensorDirectory::FindDense(const Unit& unit, std::string_view name) const {
  const auto it = std::lower_bound(unit.by_name.begin(), unit.by_name.end(), name,
                                   [&](uint16_t i, std::string_view wanted) { return unit.tensors[i].name < wanted; });
  return it != unit.by_name.end() && unit.tensors[*it].name == name ? unit.first_slot + *it : -1;
}

TensorDirectory::Lookup TensorDirectory::Find(std::string_view name) const {
  using Kind = Lookup::Kind;
  const TensorName parsed = ParseTensorName(name);
  const auto layers = static_cast<int>(units_.size()) - 1;
  int64_t slot = -1;
  switch (parsed.kind) {
    case TensorName::Kind::kVision:
      return {Kind::kVision, -1};
    case TensorName::Kind::kUnknown:
      break;
    case TensorName::Kind::kGlobal:
      slot = FindDense(units_.back(), parsed.rest);
      break;
    case TensorName::Kind::kLayer:
      if (parsed.layer < layers) slot = FindDense(units_[static_cast<size_t>(parsed.layer)], parsed.rest);
      break;
    case TensorName::Kind::kExpert:
      if (parsed.layer < first_moe_layer_ || parsed.layer >= layers || parsed.expert >= num_experts_) break;
      for (int part = 0; part < kExpertParts; ++part) {
        if (expert_parts_[static_cast<size_t>(part)].name != parsed.rest) continue;
        const ExpertKey key{parsed.layer, static_cast<int32_t>(parsed.expert)};
        slot = dense_count_ + ExpertPosition(key) * kExpertParts + part;
      }
      break;
  }
  return slot < 0 ? Lookup{} : Lookup{Kind::kText, slot};
}

int64_t TensorDirectory::ExpertPosition(ExpertKey key) const {
  DFIN_CHECK(key.layer >= first_moe_layer_ && key.layer < static_cast<int64_t>(units_.size()) - 1 && key.expert >= 0 &&
                 key.expert < num_experts_,
             "no such expert");
  return (key.layer - first_moe_layer_) * num_experts_ + key.expert;
}

ExpertKey TensorDirectory::ExpertAt(int64_t position) const {
  return {static_cast<int32_t>(first_moe_layer_ + position / num_experts_),
          static_cast<int32_t>(position % num_experts_)};
}

int TensorDirectory::LayerOf(int64_t dense_slot) const {
  const int unit = unit_of_slot_[static_cast<size_t>(dense_slot)];
  return unit == static_cast<int>(units_.size()) - 1 ? -1 : unit;
}

const TensorSpec& TensorDirectory::Spec(int64_t slot) const {
  if (slot >= dense_count_) return expert_parts_[static_cast<size_t>((slot - dense_count_) % kExpertParts)];
  const Unit& unit = units_[static_cast<size_t>(unit_of_slot_[static_cast<size_t>(slot)])];
  return unit.tensors[static_cast<size_t>(slot - unit.first_slot)];
}

std::string TensorDirectory::Name(int64_t slot) const {
  const std::string_view name = Spec(slot).name;
  if (slot >= dense_count_) {
    const ExpertKey key = ExpertAt((slot - dense_count_) / kExpertParts);
    return ExpertTensorName(key.layer, key.expert, name);
  }
  const int layer = LayerOf(slot);
  return layer < 0 ? std::string(name) : LayerTensorName(layer, name);
}

Status TensorDirectory::Place(int64_t slot, int32_t shard, const TensorEntry& entry, uint64_t data_start,
                              const std::string& what) {
  const auto s = static_cast<size_t>(slot);
  const TensorSpec& spec = Spec(slot);
  if (!spec.Matches(entry.dtype, entry.shape))
    return Fail(ErrorCode::kCorrupt, what, ": tensor '", entry.name, "': expected ", spec.Expected(),
                " for this config.json, got ", ToString(entry.dtype), " ", ToString(entry.shape));
  if (placed(slot)) return Fail(ErrorCode::kCorrupt, what, ": tensor '", entry.name, "': expected once, got it twice");
  place_shard_[s] = shard;
  place_offset_[s] = data_start + entry.begin;
  if (slot < dense_count_) dense_shape_[s] = entry.shape;
  return {};
}

std::vector<TensorPlace> TensorDirectory::DensePlaces() const {
  std::vector<TensorPlace> places;
  places.reserve(static_cast<size_t>(dense_count_));
  for (int64_t slot = 0; slot < dense_count_; ++slot) {
    const auto s = static_cast<size_t>(slot);
    if (!placed(slot)) {
      places.push_back({Spec(slot).dtype, {}, -1, 0, 0});
      continue;
    }
    const DType dtype = Spec(slot).dtype;
    const Shape& shape = dense_shape_[s];
    const auto bytes = static_cast<uint64_t>(shape.elements() * ByteSize(dtype));
    places.push_back({dtype, shape, place_shard_[s], place_offset_[s], bytes});
  }
  return places;
}

Result<ExpertPlace> TensorDirectory::PlaceOfExpert(int64_t position, const std::vector<std::string>& shards) const {
  const auto first = static_cast<size_t>(dense_count_ + position * kExpertParts);
  const auto refuse = [&](const std::string& got) {
    const ExpertKey key = ExpertAt(position);
    return Fail(ErrorCode::kUnsupported, shards[static_cast<size_t>(place_shard_[first])], ": layer ", key.layer,
                ", expert ", key.expert, ": expected its six tensors back to back in one file, got ", got);
  };
  for (size_t part = 0; part < kExpertParts; ++part)
    if (place_shard_[first + part] < 0) return ExpertPlace{-1, 0, {}};
  std::array<uint8_t, kExpertParts> order{0, 1, 2, 3, 4, 5};
  std::sort(order.begin(), order.end(),
            [&](uint8_t a, uint8_t b) { return place_offset_[first + a] < place_offset_[first + b]; });
  ExpertPlace place{place_shard_[first], place_offset_[first + order[0]], {}};
  uint64_t end = place.offset;
  for (const uint8_t part : order) {
    if (place_shard_[first + part] != place.shard)
      return refuse("one in " + shards[static_cast<size_t>(place_shard_[first + part])]);
    const TensorSpec& spec = expert_parts_[part];
    if (place_offset_[first + part] != end)
      return refuse(Cat("other bytes before '", spec.name, "', at offset ", place_offset_[first + part]));
    const auto at = static_cast<uint32_t>(end - place.offset);
    (part % 2 == 0 ? place.layout.packed_offset : place.layout.scale_offset)[part / 2] = at;
    end += static_cast<uint64_t>(spec.shape.elements());
  }
  return place;
}

Result<std::vector<ExpertPlace>> TensorDirectory::ExpertPlaces(const std::vector<std::string>& shards) const {
  std::vector<ExpertPlace> places;
  places.reserve(static_cast<size_t>(expert_count_));
  for (int64_t position = 0; position < expert_count_; ++position) {
    DFIN_TRY(ExpertPlace place, PlaceOfExpert(position, shards));
    places.push_back(place);
  }
  return places;
}

}  // namespace deltafin
