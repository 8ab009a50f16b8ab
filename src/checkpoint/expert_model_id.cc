#include "checkpoint/expert_model_id.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/read_group.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

constexpr std::string_view kBiasName = "block_sparse_moe.gate.e_score_correction_bias";

}  // namespace

Result<uint64_t> ExpertModelId(const Checkpoint& checkpoint, IoScheduler& io, CancelToken cancel) {
  const ModelSpec& spec = checkpoint.spec();
  const int layers = static_cast<int>(spec.layers.size());
  const int first = layers - static_cast<int>(spec.num_moe_layers);
  std::vector<const TensorPlace*> places;
  uint64_t alignment = 1, slot = 0;
  for (int layer = first; layer < layers; ++layer) {
    const std::string name = LayerTensorName(layer, kBiasName);
    if (!checkpoint.has_dense(name))
      return Fail(ErrorCode::kNotFound, checkpoint.folder(), ": tensor '", name,
                  "': expected, to tell which model this is, got none: its shard is missing");
    places.push_back(&checkpoint.Dense(name));
    alignment = std::max(alignment, checkpoint.shard(places.back()->shard).alignment());
    slot = std::max(slot, WidenedBytesAnywhere(places.back()->bytes, alignment));
  }
  slot = AlignUp(slot, alignment);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(slot * places.size(), false));
  const auto buffer = std::make_shared<const AlignedBuffer>(std::move(memory));
  ReadGroup reads(buffer);
  const IoTag tag = io.NewTag();
  for (size_t i = 0; i < places.size(); ++i) {
    const TensorPlace& place = *places[i];
    reads.Start(io, {&checkpoint.shard(place.shard), place.offset, place.bytes, buffer->data() + i * slot},
                IoPriority::kDemand, tag, checkpoint.shard_drive(place.shard));
  }
  if (!reads.WaitUnless(cancel)) {
    io.Cancel(tag);
    return Fail(ErrorCode::kCancelled, "reading the router biases: stopped");
  }
  Status status = reads.Wait();
  if (!status) return FailWith(std::move(status), "reading the router biases");

  uint64_t hash = Hash64(Cat("deltafin experts ", spec.routed_expert_hidden_size, " ", spec.moe_intermediate_size, " ",
                             first, " ", spec.num_moe_layers, " ", spec.num_experts));
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t lead = places[i]->offset % checkpoint.shard(places[i]->shard).alignment();
    hash = Hash64(Bytes(buffer->data() + i * slot + lead, places[i]->bytes), hash);
  }
  return hash == 0 ? 1 : hash;
}

Status CheckExpertModel(const ExpertSetManifest& manifest, uint64_t model_id) {
  if (manifest.model_id == model_id) return {};
  if (manifest.model_id == 0)
    return Fail(ErrorCode::kCorrupt, "expert set ", ToHex(manifest.set_id), ": expected model ", ToHex(model_id),
                ", got a set packed before its model could be told: run `deltafin pack` again");
  return Fail(ErrorCode::kCorrupt, "expert set ", ToHex(manifest.set_id), ": expected experts of model ",
              ToHex(model_id), ", got those of model ", ToHex(manifest.model_id),
              ": name the folders that were packed from this --model");
}

}  // namespace deltafin
