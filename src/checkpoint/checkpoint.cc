#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/model_file.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/index_file.h"
#include "checkpoint/integrity.h"
#include "checkpoint/tensor_directory.h"

namespace deltafin {
namespace {

Failure OpeningCancelled(const std::string& folder) {
  return Fail(ErrorCode::kCancelled, "opening ", folder, ": stopped");
}

Failure MissingShards(const std::string& folder, const FolderIndex& index, const std::vector<size_t>& missing) {
  const IndexedShard& first = index.shards[missing.front()];
  const auto with_text = std::count_if(index.shards.begin(), index.shards.end(),
                                       [](const IndexedShard& shard) { return shard.text_tensors > 0; });
  return Fail(ErrorCode::kNotFound, folder, "/", first.name, ": missing: the index puts ", first.text_tensors,
              " tensors into it, such as '", first.example, "'; ", missing.size(), " of ", with_text,
              " shards with text tensors are missing: download them into that folder");
}

Status CheckShardsThere(const std::string& folder, const FolderIndex& index) {
  std::vector<size_t> missing;
  for (size_t i = 0; i < index.shards.size(); ++i) {
    if (index.shards[i].text_tensors == 0) continue;
    const Result<FileStamp> stamp = StampFile(folder + "/" + index.shards[i].name);
    if (stamp) continue;
    if (stamp.error().code() != ErrorCode::kNotFound) return Failure(stamp.error());
    missing.push_back(i);
  }
  if (missing.empty()) return {};
  return MissingShards(folder, index, missing);
}

// The index must name every tensor before any header is read: the commonest fault is an incomplete download.
Status CheckIndexComplete(const std::string& folder, const TensorDirectory& directory) {
  int64_t missing = 0, first = -1;
  for (int64_t slot = 0; slot < directory.slot_count(); ++slot)
    if (directory.index_shard(slot) < 0 && ++missing == 1) first = slot;
  if (missing == 0) return {};
  return Fail(ErrorCode::kCorrupt, folder, "/", kIndexFileName, ": tensor '", directory.Name(first),
              "': expected in weight_map for this config.json, got nothing (", missing, " of ", directory.slot_count(),
              " tensors are missing): config.json and index may be of different models");
}

Status PlaceTensors(const SafetensorsHeader& header, const FolderIndex& index, int32_t shard, const std::string& path,
                    TensorDirectory& directory) {
  for (const TensorEntry& entry : header.tensors()) {
    const TensorDirectory::Lookup found = directory.Find(entry.name);
    if (found.kind == TensorDirectory::Lookup::Kind::kVision) continue;
    if (found.kind == TensorDirectory::Lookup::Kind::kUnknown) return UnknownTensorError(path, entry.name);
    DFIN_TRY_VOID(CheckIndexAgrees(index, directory, found.slot, shard, path));
    DFIN_TRY_VOID(directory.Place(found.slot, shard, entry, header.data_start(), path));
  }
  return {};
}

Status CheckAllPlaced(const std::string& folder, const FolderIndex& index, const TensorDirectory& directory) {
  int64_t missing = 0, first = -1;
  for (int64_t slot = 0; slot < directory.slot_count(); ++slot)
    if (!directory.placed(slot) && ++missing == 1) first = slot;
  if (missing == 0) return {};
  const int32_t shard = index.has_index ? directory.index_shard(first) : 0;
  return Fail(ErrorCode::kCorrupt, folder, "/", index.shards[static_cast<size_t>(shard)].name, ": tensor '",
              directory.Name(first), "': expected in this file",
              index.has_index ? Cat(" as ", kIndexFileName, " says") : "", ", got a header without it (", missing,
              " tensors are missing in all)");
}

// Reads index and headers. The directory holds the tensors' places afterwards.
Result<CheckpointPlaces> ScanFolder(const CheckpointSource& source, const CheckpointOptions& options,
                                    TensorDirectory& directory) {
  const std::string& folder = source.folder;
  DFIN_TRY(const FolderIndex index, ReadFolderIndex(folder, directory));
  if (index.has_index) DFIN_TRY_VOID(CheckIndexComplete(folder, directory));
  DFIN_TRY_VOID(CheckShardsThere(folder, index));

  CheckpointPlaces places;
  places.fingerprint = source.config_hash;
  std::vector<int32_t> kept(index.shards.size(), -1);  // shards without text tensors drop out
  const auto total = static_cast<uint64_t>(std::count_if(
      index.shards.begin(), index.shards.end(), [](const IndexedShard& shard) { return shard.text_tensors > 0; }));
  for (size_t i = 0; i < index.shards.size(); ++i) {
    if (index.shards[i].text_tensors == 0) continue;
    if (options.cancel.cancelled()) return OpeningCancelled(folder);
    const std::string path = folder + "/" + index.shards[i].name;
    DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
    DFIN_TRY_VOID(CheckShardSize(shard, path));
    DFIN_TRY_VOID(PlaceTensors(shard.header, index, static_cast<int32_t>(i), path, directory));
    kept[i] = static_cast<int32_t>(places.shards.size());
    places.shards.push_back(index.shards[i].name);
    places.stamps.push_back(shard.stamp);
    places.fingerprint = Hash64(Cat(index.shards[i].name, " ", shard.hash), places.fingerprint);
    if (options.progress) options.progress(places.shards.size(), total);
  }
  DFIN_TRY_VOID(CheckAllPlaced(folder, index, directory));
  places.dense = directory.DensePlaces();
  std::vector<std::string> names;
  for (const IndexedShard& shard : index.shards) names.push_back(folder + "/" + shard.name);
  DFIN_TRY(places.experts, directory.ExpertPlaces(names));
  for (TensorPlace& place : places.dense) place.shard = kept[static_cast<size_t>(place.shard)];
  for (ExpertPlace& place : places.experts) place.shard = kept[static_cast<size_t>(place.shard)];
  return places;
}

}  // namespace

struct Checkpoint::State {
  std::string folder;
  ModelSpec spec;
  uint64_t fingerprint = 0;
  bool headers_were_cached = false;
  std::string index_cache_note;
  std::vector<DirectFile> shards;
  std::map<std::string, TensorPlace, std::less<>> dense;
  std::vector<std::vector<std::string>> names;  // [layers + 1], the last one holds the globals
  std::vector<ExpertPlace> experts;             // [moe layers, experts]

  void TakePlaces(const TensorDirectory& directory, CheckpointPlaces places);
};

void Checkpoint::State::TakePlaces(const TensorDirectory& directory, CheckpointPlaces places) {
  fingerprint = places.fingerprint;
  experts = std::move(places.experts);
  names.resize(spec.layers.size() + 1);
  for (int64_t slot = 0; slot < directory.dense_count(); ++slot) {
    const TensorPlace& place = places.dense[static_cast<size_t>(slot)];
    const int layer = directory.LayerOf(slot);
    std::string name = directory.Name(slot);
    names[layer < 0 ? spec.layers.size() : static_cast<size_t>(layer)].push_back(name);
    dense.emplace(std::move(name), place);
  }
  for (std::vector<std::string>& unit : names) {
    std::sort(unit.begin(), unit.end(), [&](const std::string& a, const std::string& b) {
      const TensorPlace& left = dense.find(a)->second;
      const TensorPlace& right = dense.find(b)->second;
      return std::pair(left.shard, left.offset) < std::pair(right.shard, right.offset);
    });
  }
}

Result<Checkpoint> Checkpoint::Open(const CheckpointOptions& options) {
  DFIN_TRY_VOID(CheckCheckpointFolder(options.folder));
  const std::string config_path = options.folder + "/config.json";
  DFIN_TRY(const std::string config_text, ReadModelFile(config_path, kMaxConfigBytes));
  auto state = std::make_unique<State>();
  state->folder = options.folder;
  DFIN_TRY(state->spec, ModelSpec::FromConfigText(config_text, config_path));

  CheckpointSource source;
  std::error_code ignored;
  source.folder = std::filesystem::absolute(options.folder, ignored).string();
  source.config_hash = Hash64(config_text);
  if (const Result<FileStamp> stamp = StampFile(options.folder + "/" + kIndexFileName)) source.index = *stamp;

  TensorDirectory directory(state->spec);
  std::optional<CheckpointPlaces> places;
  const bool caching = !options.index_cache_folder.empty();
  if (caching) places = LoadPlaces(options.index_cache_folder, source, directory);
  state->headers_were_cached = places.has_value();
  if (!places) {
    DFIN_TRY(places, ScanFolder(source, options, directory));
    if (caching) {
      // Costs only time at the next start, so it is no error.
      const Status stored = StorePlaces(options.index_cache_folder, source, *places);
      if (!stored) state->index_cache_note = "the shards' headers cannot be cached: " + stored.error().message();
    }
  }
  for (const std::string& name : places->shards) {
    if (options.cancel.cancelled()) return OpeningCancelled(options.folder);
    DFIN_TRY(DirectFile file, DirectFile::Open(options.folder + "/" + name));
    state->shards.push_back(std::move(file));
  }
  state->TakePlaces(directory, std::move(*places));
  return Checkpoint(std::move(state));
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::folder() const { return state_->folder; }
const ModelSpec& Checkpoint::spec() const { return state_->spec; }
uint64_t Checkpoint::fingerprint() const { return state_->fingerprint; }

const TensorPlace& Checkpoint::Dense(std::string_view name) const {
  const auto it = state_->dense.find(name);
  DFIN_CHECK(it != state_->dense.end(), "the spec calls for no tensor of this name");
  return it->second;
}

const std::vector<std::string>& Checkpoint::DenseNames(int layer) const {
  const auto layers = static_cast<int>(state_->spec.layers.size());
  DFIN_CHECK(layer >= -1 && layer < layers, "no such layer");
  return state_->names[static_cast<size_t>(layer < 0 ? layers : layer)];
}

const ExpertPlace& Checkpoint::Expert(ExpertKey key) const {
  const ModelSpec& spec = state_->spec;
  const int64_t row = key.layer - (static_cast<int64_t>(spec.layers.size()) - spec.num_moe_layers);
  DFIN_CHECK(row >= 0 && row < spec.num_moe_layers && key.expert >= 0 && key.expert < spec.num_experts,
             "no such expert");
  return state_->experts[static_cast<size_t>(row * spec.num_experts + key.expert)];
}

int Checkpoint::shard_count() const { return static_cast<int>(state_->shards.size()); }
const DirectFile& Checkpoint::shard(int index) const { return state_->shards[static_cast<size_t>(index)]; }

bool Checkpoint::headers_were_cached() const { return state_->headers_were_cached; }
const std::string& Checkpoint::index_cache_note() const { return state_->index_cache_note; }

}  // namespace deltafin
