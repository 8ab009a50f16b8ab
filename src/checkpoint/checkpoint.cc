#include "checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/model_file.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/hex.h"
#include "checkpoint/index_file.h"
#include "checkpoint/integrity.h"
#include "checkpoint/stream_manifest.h"
#include "checkpoint/tensor_directory.h"
#include "checkpoint/unfinished_download.h"

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
              " shards with text tensors are missing: download them into that folder",
              first.dense_tensors == 0 ? ", or name the folders of the expert set with --experts" : "");
}

// Whether the checkpoint is of no use without the shard.
bool Needs(const IndexedShard& shard, ExpertsWanted experts) {
  if (experts == ExpertsWanted::kPartial) return false;
  return (experts == ExpertsWanted::kInShards ? shard.text_tensors : shard.dense_tensors) > 0;
}

// Which shards with text tensors are there.
Result<std::vector<bool>> FindShards(const std::string& folder, const FolderIndex& index, ExpertsWanted experts) {
  std::vector<bool> there(index.shards.size(), false);
  std::vector<size_t> missing;
  for (size_t i = 0; i < index.shards.size(); ++i) {
    if (index.shards[i].text_tensors == 0) continue;
    const Result<FileStamp> stamp = StampFile(ShardPath(folder, index.shards[i].name));
    there[i] = stamp.has_value();
    if (stamp) continue;
    if (stamp.error().code() != ErrorCode::kNotFound) return Failure(stamp.error());
    if (Needs(index.shards[i], experts)) missing.push_back(i);
  }
  if (!missing.empty()) return MissingShards(folder, index, missing);
  return there;
}

// The index must name every tensor before any header is read: the commonest fault is an incomplete download.
Status CheckIndexComplete(const std::string& folder, const TensorDirectory& directory, ExpertsWanted experts) {
  const int64_t slots = experts == ExpertsWanted::kInShards ? directory.slot_count() : directory.dense_count();
  int64_t missing = 0, first = -1;
  for (int64_t slot = 0; slot < slots; ++slot)
    if (directory.index_shard(slot) < 0 && ++missing == 1) first = slot;
  if (missing == 0) return {};
  return Fail(ErrorCode::kCorrupt, folder, "/", kIndexFileName, ": tensor '", directory.Name(first),
              "': expected in weight_map for this config.json, got nothing (", missing, " of ", slots,
              " tensors are missing): config.json and index may be of different models",
              first >= directory.dense_count() ? ", or the experts are in a set that --experts names" : "");
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

struct ScannedShards {
  std::vector<bool> there;
  std::vector<std::string> moved_to;  // "", or the expert set that took the shard's experts
};

// Every tensor that must be there has a place.
Status CheckAllPlaced(const std::string& folder, const FolderIndex& index, const TensorDirectory& directory,
                      const ScannedShards& scanned, ExpertsWanted experts) {
  int64_t missing = 0, first = -1;
  for (int64_t slot = 0; slot < directory.slot_count(); ++slot) {
    if (directory.placed(slot)) continue;
    const bool is_expert = slot >= directory.dense_count();
    if (is_expert && experts == ExpertsWanted::kElsewhere) continue;
    const int32_t shard = index.has_index ? directory.index_shard(slot) : 0;
    if (experts == ExpertsWanted::kPartial && (shard < 0 || !scanned.there[static_cast<size_t>(shard)])) continue;
    const std::string& moved_to = scanned.moved_to[static_cast<size_t>(shard)];
    if (is_expert && !moved_to.empty()) {
      if (experts == ExpertsWanted::kPartial) continue;
      return Fail(ErrorCode::kNotFound, folder, "/", index.shards[static_cast<size_t>(shard)].name,
                  ": expected experts in this shard, got a note that `deltafin pack --move` moved them to expert set ",
                  FromHex(moved_to) ? moved_to : "of an unreadable name",
                  ": name its folders with --experts, one for each drive");
    }
    if (++missing == 1) first = slot;
  }
  if (missing == 0) return {};
  const int32_t shard = index.has_index ? directory.index_shard(first) : 0;
  return Fail(ErrorCode::kCorrupt, folder, "/", index.shards[static_cast<size_t>(shard)].name, ": tensor '",
              directory.Name(first), "': expected in this file",
              index.has_index ? Cat(" as ", kIndexFileName, " says") : "", ", got a header without it (", missing,
              " tensors are missing in all)");
}

// A folder whose experts are fetched as they are routed serves those who know, once its dense part is there.
Status CheckStreamed(const CheckpointOptions& options) {
  DFIN_TRY(const StreamManifest manifest, ReadStreamManifest(options.folder));
  const std::string command = Cat("`deltafin setup --repo ", manifest.repository, " --to ", options.folder);
  if (!manifest.dense_complete)
    return Fail(ErrorCode::kNotFound, options.folder,
                ": expected all dense weights, got a download that has not ended: "
                "finish it with ",
                command, " --dense-only`");
  if (options.may_be_streamed || options.experts == ExpertsWanted::kElsewhere) return {};
  return Fail(ErrorCode::kUnsupported, options.folder,
              ": expected all experts, got a folder whose experts are fetched as they are used: fetch the rest with ",
              command, "` first");
}

// Over config and which shard holds which dense tensor.
uint64_t Fingerprint(uint64_t config_hash, const FolderIndex& index, const TensorDirectory& directory) {
  uint64_t hash = config_hash;
  for (int64_t slot = 0; slot < directory.dense_count(); ++slot) {
    const int32_t shard = index.has_index ? directory.index_shard(slot) : 0;
    hash = Hash64(Cat(directory.Name(slot), " ", index.shards[static_cast<size_t>(shard)].name), hash);
  }
  return hash;
}

// Reads index and headers. The directory holds the tensors' places afterwards.
Result<CheckpointPlaces> ScanFolder(const std::string& folder, uint64_t config_hash, const CheckpointOptions& options,
                                    TensorDirectory& directory) {
  DFIN_TRY(const FolderIndex index, ReadFolderIndex(folder, directory));
  if (index.has_index) DFIN_TRY_VOID(CheckIndexComplete(folder, directory, options.experts));
  ScannedShards scanned;
  DFIN_TRY(scanned.there, FindShards(folder, index, options.experts));
  scanned.moved_to.resize(index.shards.size());

  CheckpointPlaces places;
  places.fingerprint = Fingerprint(config_hash, index, directory);
  std::vector<int32_t> kept(index.shards.size(), -1);  // shards without text tensors drop out
  const auto total = static_cast<uint64_t>(std::count(scanned.there.begin(), scanned.there.end(), true));
  for (size_t i = 0; i < index.shards.size(); ++i) {
    if (!scanned.there[i]) continue;
    if (options.cancel.cancelled()) return OpeningCancelled(folder);
    const std::string path = ShardPath(folder, index.shards[i].name);
    DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
    DFIN_TRY_VOID(CheckShardSize(shard, path));
    DFIN_TRY_VOID(PlaceTensors(shard.header, index, static_cast<int32_t>(i), path, directory));
    scanned.moved_to[i] = shard.header.metadata(kExpertsMovedTo);
    kept[i] = static_cast<int32_t>(places.shards.size());
    places.shards.push_back(index.shards[i].name);
    places.stamps.push_back(shard.stamp);
    if (options.progress) options.progress(places.shards.size(), total);
  }
  DFIN_TRY_VOID(CheckAllPlaced(folder, index, directory, scanned, options.experts));
  places.dense = directory.DensePlaces();
  std::vector<std::string> names;
  for (const IndexedShard& shard : index.shards) names.push_back(folder + "/" + shard.name);
  DFIN_TRY(places.experts, directory.ExpertPlaces(names));
  const auto renumber = [&](int32_t& shard) { shard = shard < 0 ? -1 : kept[static_cast<size_t>(shard)]; };
  for (TensorPlace& place : places.dense) renumber(place.shard);
  for (ExpertPlace& place : places.experts) renumber(place.shard);
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

  std::vector<DriveInfo> drives;
  std::vector<int32_t> shard_drives;  // [shards]

  static Result<std::unique_ptr<State>> Open(const CheckpointOptions& options);
  void TakePlaces(const TensorDirectory& directory, CheckpointPlaces places);
  void FindDrives(const std::string& given_folder);
  const ExpertPlace& Expert(ExpertKey key) const;
};

void Checkpoint::State::TakePlaces(const TensorDirectory& directory, CheckpointPlaces places) {
  fingerprint = places.fingerprint;
  experts = std::move(places.experts);
  names.resize(spec.layers.size() + 1);
  for (int64_t slot = 0; slot < directory.dense_count(); ++slot) {
    const TensorPlace& place = places.dense[static_cast<size_t>(slot)];
    if (place.shard < 0) continue;
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

// Shards may be links to files on several drives.
void Checkpoint::State::FindDrives(const std::string& given_folder) {
  std::map<uint64_t, int32_t> numbers;
  for (const DirectFile& shard : shards) {
    struct stat info {};
    const uint64_t device = fstat(shard.fd(), &info) == 0 ? static_cast<uint64_t>(info.st_dev) : 0;
    const auto [it, is_new] = numbers.try_emplace(device, static_cast<int32_t>(drives.size()));
    if (is_new) {
      std::error_code ignored;
      const auto real = std::filesystem::weakly_canonical(shard.path(), ignored).parent_path();
      const auto folder = std::filesystem::weakly_canonical(given_folder, ignored);
      const bool is_link = real != folder && real != folder / kPartialFolder;
      drives.push_back({is_link ? real.string() : given_folder, 0});
    }
    shard_drives.push_back(it->second);
  }
  if (drives.empty()) drives.push_back({given_folder, 0});
}

Result<Checkpoint> Checkpoint::Open(const CheckpointOptions& options) {
  DFIN_TRY_VOID(CheckCheckpointFolder(options.folder));
  Result<std::unique_ptr<State>> opened = State::Open(options);
  if (opened) return Checkpoint(std::move(*opened));
  // Files that are still to come are no damage.
  const ErrorCode code = opened.error().code();
  if (code == ErrorCode::kNotFound || code == ErrorCode::kCorrupt)
    if (const std::string unfinished = UnfinishedDownload(options.folder); !unfinished.empty())
      return Fail(ErrorCode::kNotFound, unfinished);
  return Failure(std::move(opened.error()));
}

Result<std::unique_ptr<Checkpoint::State>> Checkpoint::State::Open(const CheckpointOptions& options) {
  const std::string config_path = options.folder + "/config.json";
  DFIN_TRY(const std::string config_text, ReadModelFile(config_path, kMaxConfigBytes));
  auto state = std::make_unique<State>();
  state->folder = options.folder;
  DFIN_TRY(state->spec, ModelSpec::FromConfigText(config_text, config_path));

  CheckpointSource source;
  std::error_code ignored;
  source.folder = std::filesystem::absolute(options.folder, ignored).string();
  source.experts_elsewhere = options.experts == ExpertsWanted::kElsewhere;
  source.config_hash = Hash64(config_text, source.experts_elsewhere ? 1 : 0);
  if (const Result<FileStamp> stamp = StampFile(options.folder + "/" + kIndexFileName)) source.index = *stamp;

  TensorDirectory directory(state->spec);
  std::optional<CheckpointPlaces> places;
  const bool streamed = IsStreamedFolder(options.folder);
  if (streamed) DFIN_TRY_VOID(CheckStreamed(options));
  const bool caching = !options.index_cache_folder.empty() && options.experts != ExpertsWanted::kPartial && !streamed;
  if (caching) places = LoadPlaces(options.index_cache_folder, source, directory);
  state->headers_were_cached = places.has_value();
  if (!places) {
    DFIN_TRY(places, ScanFolder(source.folder, Hash64(config_text), options, directory));
    if (caching) {
      // Costs only time at the next start, so it is no error.
      const Status stored = StorePlaces(options.index_cache_folder, source, *places);
      if (!stored) state->index_cache_note = "the shards' headers cannot be cached: " + stored.error().message();
    }
  }
  const bool buffered = options.reads_buffered && options.reads_buffered(options.folder);
  for (const std::string& name : places->shards) {
    if (options.cancel.cancelled()) return OpeningCancelled(options.folder);
    const std::string path = ShardPath(options.folder, name);
    DFIN_TRY(DirectFile file, buffered ? DirectFile::OpenBuffered(path) : DirectFile::Open(path));
    state->shards.push_back(std::move(file));
  }
  state->TakePlaces(directory, std::move(*places));
  state->FindDrives(options.folder);
  return state;
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

bool Checkpoint::has_dense(std::string_view name) const { return state_->dense.find(name) != state_->dense.end(); }

const std::vector<std::string>& Checkpoint::DenseNames(int layer) const {
  const auto layers = static_cast<int>(state_->spec.layers.size());
  DFIN_CHECK(layer >= -1 && layer < layers, "no such layer");
  return state_->names[static_cast<size_t>(layer < 0 ? layers : layer)];
}

const ExpertPlace& Checkpoint::State::Expert(ExpertKey key) const {
  const int64_t row = key.layer - (static_cast<int64_t>(spec.layers.size()) - spec.num_moe_layers);
  DFIN_CHECK(row >= 0 && row < spec.num_moe_layers && key.expert >= 0 && key.expert < spec.num_experts,
             "no such expert");
  return experts[static_cast<size_t>(row * spec.num_experts + key.expert)];
}

bool Checkpoint::has_expert(ExpertKey key) const { return state_->Expert(key).shard >= 0; }

const ExpertPlace& Checkpoint::Expert(ExpertKey key) const {
  const ExpertPlace& place = state_->Expert(key);
  DFIN_CHECK(place.shard >= 0, "the expert is in no shard");
  return place;
}

int Checkpoint::shard_count() const { return static_cast<int>(state_->shards.size()); }
const DirectFile& Checkpoint::shard(int index) const { return state_->shards[static_cast<size_t>(index)]; }
const std::vector<DriveInfo>& Checkpoint::drives() const { return state_->drives; }
int32_t Checkpoint::shard_drive(int index) const { return state_->shard_drives[static_cast<size_t>(index)]; }

bool Checkpoint::headers_were_cached() const { return state_->headers_were_cached; }
const std::string& Checkpoint::index_cache_note() const { return state_->index_cache_note; }

}  // namespace deltafin
