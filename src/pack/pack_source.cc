#include "pack/pack_source.h"

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_model_id.h"
#include "pack/set_files.h"

namespace deltafin {

namespace {

Result<uint64_t> ModelId(const Checkpoint& checkpoint, const std::string& io, CancelToken cancel) {
  DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = io}));
  IoSchedulerOptions options;
  options.drives = checkpoint.drives();
  if (options.drives.empty()) options.drives = {{}};
  IoScheduler scheduler(std::move(engine), std::move(options));
  Result<uint64_t> id = ExpertModelId(checkpoint, scheduler, cancel);
  if (!id && id.error().code() == ErrorCode::kNotFound) return 0;
  return id;
}

}  // namespace

Result<PackSource> PackSource::Open(const std::string& model, const std::string& state_folder, const std::string& io,
                                    CancelToken cancel) {
  CheckpointOptions options;
  options.folder = model;
  options.index_cache_folder = state_folder;
  options.cancel = cancel;
  options.experts = ExpertsWanted::kPartial;
  DFIN_TRY(const Checkpoint checkpoint, Checkpoint::Open(options));
  PackSource source;
  source.folder = model;
  source.spec = checkpoint.spec();
  source.fingerprint = checkpoint.fingerprint();
  DFIN_TRY(source.model_id, ModelId(checkpoint, io, cancel));
  for (int i = 0; i < checkpoint.shard_count(); ++i) source.shards.push_back(checkpoint.shard(i).path());
  DFIN_TRY(source.moved, FindMovedShards(model, source.spec, source.shards, cancel));
  for (uint32_t p = 0; p < source.positions(); ++p) {
    const ExpertKey key = source.Key(p);
    if (!checkpoint.has_expert(key)) continue;
    const ExpertPlace& place = checkpoint.Expert(key);
    source.experts.push_back({p, place.shard, place.offset, place.layout});
  }
  std::sort(source.experts.begin(), source.experts.end(), [](const SourceExpert& a, const SourceExpert& b) {
    return std::pair(a.shard, a.offset) < std::pair(b.shard, b.offset);
  });
  source.by_position_.assign(source.positions(), UINT32_MAX);
  for (size_t i = 0; i < source.experts.size(); ++i)
    source.by_position_[source.experts[i].position] = static_cast<uint32_t>(i);
  return source;
}

ExpertKey PackSource::Key(uint32_t position) const {
  return {static_cast<int32_t>(first_moe_layer() + position / spec.num_experts),
          static_cast<int32_t>(position % spec.num_experts)};
}

const SourceExpert* PackSource::Find(uint32_t position) const {
  const uint32_t i = position < by_position_.size() ? by_position_[position] : UINT32_MAX;
  return i == UINT32_MAX ? nullptr : &experts[i];
}

std::string PackSource::ShardName(int32_t shard) const {
  const std::string& path = shards[static_cast<size_t>(shard)];
  return path.substr(path.rfind('/') + 1);
}

ExpertWeights ViewSource(const PackSource& source, const SourceExpert& expert, uint64_t alignment,
                         const std::byte* buffer) {
  return ViewExpert(source.geometry(), expert.layout, buffer + expert.offset % alignment);
}

Status CheckScales(const PackSource& source, const SourceExpert& expert, const ExpertWeights& weights) {
  const std::optional<BadScale> bad = FindBadScale(weights);
  if (!bad) return {};
  const int64_t groups = source.geometry().cols(bad->matrix) / kMxfp4Group;
  const uint64_t row = expert.offset + expert.layout.scale_offset[static_cast<size_t>(bad->matrix)] +
                       static_cast<uint64_t>(bad->row * groups);
  return Fail(ErrorCode::kCorrupt, NameOf(source.Key(expert.position)), ", ", ToString(bad->matrix),
              ".weight_scale, row ", bad->row, ": ", source.shards[static_cast<size_t>(expert.shard)], ", bytes ", row,
              " to ", row + static_cast<uint64_t>(groups) - 1,
              ": expected scales from 0 to 254, got 255 (not a number): the file is damaged, download it again");
}

Status RecordFromShards(const PackSource& source, IoScheduler& io, uint32_t position, const ScaleBases& bases,
                        std::byte* out, uint64_t bytes) {
  const SourceExpert* expert = source.Find(position);
  if (expert == nullptr)
    return Fail(ErrorCode::kNotFound, NameOf(source.Key(position)), ": the shards in ", source.folder,
                " do not hold it");
  DFIN_TRY(const DirectFile file, DirectFile::Open(source.shards[static_cast<size_t>(expert->shard)]));
  const auto wanted = static_cast<uint64_t>(source.geometry().record_bytes());
  DFIN_TRY(const AlignedBuffer memory, AlignedBuffer::Create(WidenedBytesAnywhere(wanted, file.alignment())));
  ReadPart part;
  part.request = {&file, expert->offset, wanted, memory.data()};
  DFIN_TRY_VOID(ReadNow(io, std::span(&part, 1)));
  const ExpertWeights weights = ViewSource(source, *expert, file.alignment(), memory.data());
  DFIN_TRY_VOID(CheckScales(source, *expert, weights));
  const ExpertGeometry geometry = source.geometry();
  const uint64_t used = PackedRecordBytes(geometry, WholeMatrices(bases));
  if (used > bytes) return Fail(ErrorCode::kCorrupt, "the set's records are smaller than the model's experts");
  // Another download of the shard might hold scales that these bases cannot express: then it is not the same expert.
  const Mxfp4View* views[] = {&weights.w1, &weights.w2, &weights.w3};
  for (size_t m = 0; m < 3; ++m) {
    const auto count = static_cast<size_t>(geometry.scale_bytes(static_cast<ExpertMatrix>(m)));
    const std::optional<uint8_t> base = CompactBase(std::as_bytes(std::span(views[m]->scale, count)));
    if (bases[m] != kWholeScales && base != bases[m])
      return Fail(ErrorCode::kCorrupt, NameOf(source.Key(position)), ": the shard holds other scales than the set");
  }
  PackRecord(geometry, weights, bases, out);
  std::memset(out + used, 0, static_cast<size_t>(bytes - used));
  return {};
}

}  // namespace deltafin
