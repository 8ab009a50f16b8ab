#include "checkpoint/inspect.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/model_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/index_file.h"
#include "checkpoint/presence_map.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tensor_directory.h"
#include "checkpoint/unfinished_download.h"
#include "spec/memory_math.h"

namespace deltafin {
namespace {

constexpr size_t kMaxExamples = 20;
// A damaged checkpoint may have a fault in each of 497,220 tensors.
constexpr size_t kMaxProblems = 200;

class Inspector {
 public:
  Inspector(const std::string& folder, const ExpertFolders& experts) : experts_(experts) { report_.folder = folder; }

  FolderReport Run() {
    for (const char* name : {"tiktoken.model", "tokenizer_config.json", "generation_config.json"})
      report_.tokenizer_files.push_back({name, StampFile(Path(name)).has_value()});
    report_.unfinished = UnfinishedDownload(report_.folder);
    if (!report_.unfinished.empty()) Problem(report_.unfinished);
    if (ReadConfig()) {
      FindStream();
      FindExpertSet();
      ReadWeights();
    }
    const std::vector<FileReport>& files = report_.tokenizer_files;
    report_.weights_complete = report_.spec.has_value() && report_.problems.empty();
    // generation_config.json only carries defaults for sampling.
    report_.complete = report_.weights_complete && files[0].present && files[1].present;
    return std::move(report_);
  }

 private:
  std::string Path(const std::string& name) const { return report_.folder + "/" + name; }
  void Problem(std::string text) {
    if (report_.problems.size() < kMaxProblems) report_.problems.push_back(std::move(text));
  }

  bool ReadConfig() {
    const std::string path = Path("config.json");
    const Result<std::string> text = ReadModelFile(path, kMaxConfigBytes);
    if (!text) {
      Problem(text.error().message());
      return false;
    }
    report_.architecture = ModelSpec::ArchitectureName(*text);
    Result<ModelSpec> spec = ModelSpec::FromConfigText(*text, path);
    if (!spec) {
      Problem(spec.error().message());
      return false;
    }
    report_.dense_bytes = DenseWeightBytes(*spec);
    report_.expert_bytes = ExpertWeightBytes(*spec);
    report_.bytes_per_expert = static_cast<uint64_t>(ExpertGeometry(*spec).record_bytes());
    report_.spec = std::move(*spec);
    return true;
  }

  void FindStream() {
    if (!IsStreamedFolder(report_.folder)) return;
    if (const Status read = ReadStream(); !read) Problem(read.error().message());
  }

  Status ReadStream() {
    DFIN_TRY(const StreamManifest manifest, ReadStreamManifest(report_.folder));
    StreamReport& stream = report_.stream.emplace();
    stream.endpoint = manifest.endpoint;
    stream.repository = manifest.repository;
    stream.commit = manifest.commit;
    stream.dense_complete = manifest.dense_complete;
    const std::string map_path = Path(Cat(kPartialFolder, "/", kPresenceName));
    const Result<std::string> text = ReadWholeFile(map_path, kMaxPresenceBytes);
    if (!text)
      return Fail(text.error().code(), text.error().message(),
                  ": expected the map of what was fetched: give the `deltafin setup --dense-only` command again");
    DFIN_TRY(const PresenceContents contents, ParsePresence(std::as_bytes(std::span(*text)), manifest, map_path));
    PresenceMap map(manifest.files.size());
    for (const PresenceEntry& entry : contents.entries) map.Apply(entry);
    for (size_t i = 0; i < manifest.files.size(); ++i) {
      const Result<FileStamp> stamp = StampFile(Path(manifest.files[i].name));
      const bool compared = stamp && stamp->bytes == manifest.files[i].bytes &&
                            map.ComparedAt(static_cast<int32_t>(i)) == static_cast<uint64_t>(stamp->modified_ns);
      stream.shards_published += compared ? 1 : 0;
    }
    stream.experts = map.experts();
    stream.expert_bytes = map.expert_bytes();
    stream.damaged_entries = contents.damaged;
    if (manifest.dense_complete) return {};
    return Fail(
        ErrorCode::kNotFound, report_.folder,
        ": expected all dense weights, got a download that has not ended: give the `deltafin setup --dense-only` "
        "command again");
  }

  // Named or noted: as for a run, the shards' own experts do not matter then.
  void FindExpertSet() {
    std::vector<std::string> folders = experts_.folders;
    if (folders.empty()) {
      Result<std::vector<std::string>> noted = FindExpertFolders(report_.folder, experts_.state_folder);
      if (!noted) return Problem(noted.error().message());
      folders = std::move(*noted);
    }
    if (folders.empty()) return;
    report_.expert_set = InspectExpertSet(folders, *report_.spec);
    if (!report_.expert_set->problem.empty()) Problem(report_.expert_set->problem);
  }
  bool experts_in_set() const { return report_.expert_set && report_.expert_set->complete; }

  void ReadWeights() {
    TensorDirectory directory(*report_.spec);
    report_.text_tensors = directory.slot_count();
    std::vector<std::string> unknown;
    Result<FolderIndex> index = ReadFolderIndex(report_.folder, directory, &unknown);
    if (!index) {
      Problem(index.error().message());
      report_.tensors_missing = report_.text_tensors;
      return;
    }
    report_.has_index = index->has_index;
    for (const std::string& name : unknown) Problem(UnknownTensorError(Path(kIndexFileName), name).value().message());
    for (size_t i = 0; i < index->shards.size(); ++i) ReadShard(*index, i, directory);
    NoteMovedExperts();
    CountMissing(directory);
    // What only the whole picture shows, such as experts that do not lie in one piece.
    if (report_.problems.empty()) {
      std::vector<std::string> names;
      for (const IndexedShard& shard : index->shards) names.push_back(Path(shard.name));
      if (const auto experts = directory.ExpertPlaces(names); !experts) Problem(experts.error().message());
    }
  }

  void ReadShard(const FolderIndex& index, size_t number, TensorDirectory& directory) {
    const IndexedShard& indexed = index.shards[number];
    ShardReport shard;
    shard.name = indexed.name;
    shard.has_text = indexed.text_tensors > 0;
    shard.needed = (experts_in_set() ? indexed.dense_tensors : indexed.text_tensors) > 0;
    shard.text_tensors = indexed.text_tensors;
    const std::string path = ShardPath(report_.folder, indexed.name);
    const Result<FileStamp> stamp = StampFile(path);
    shard.present = stamp || stamp.error().code() != ErrorCode::kNotFound;
    if (stamp) shard.bytes = stamp->bytes;
    if (shard.present) {
      const Status read = ReadHeader(index, number, path, directory, shard);
      if (!read) shard.problem = read.error().message();
    } else if (shard.needed || !shard.has_text) {
      shard.problem = path + ": missing";
    }
    if (!shard.problem.empty() && shard.has_text) {
      ++(shard.present ? report_.shards_damaged : report_.shards_missing);
      Problem(shard.problem);
    }
    report_.shards.push_back(std::move(shard));
  }

  // The first fault of the shard; the tensors that are in order are placed all the same.
  Status ReadHeader(const FolderIndex& index, size_t number, const std::string& path, TensorDirectory& directory,
                    ShardReport& report) {
    DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
    NoteMoved(shard.header.metadata(kExpertsMovedTo), report);
    report.expected_bytes = shard.header.file_bytes();
    if (!report.has_text) return CheckShardSize(shard, path);
    Status status = CheckShardSize(shard, path);
    const auto note = [&](Status&& next) {
      if (status && !next) status = std::move(next);
    };
    for (const TensorEntry& entry : shard.header.tensors()) {
      const TensorDirectory::Lookup found = directory.Find(entry.name);
      if (found.kind == TensorDirectory::Lookup::Kind::kVision) continue;
      if (found.kind == TensorDirectory::Lookup::Kind::kUnknown) {
        note(UnknownTensorError(path, entry.name));
        continue;
      }
      note(CheckIndexAgrees(index, directory, found.slot, static_cast<int32_t>(number), path));
      note(directory.Place(found.slot, static_cast<int32_t>(number), entry, shard.header.data_start(), path));
    }
    return status;
  }

  void NoteMoved(std::string_view set_id, ShardReport& report) {
    if (set_id.empty()) return;
    ++report_.shards_moved;
    report.experts_moved_to = FromHex(set_id) ? set_id : std::string_view("of an unreadable name");
    if (moved_to_.empty()) moved_to_ = report.experts_moved_to;
  }

  void NoteMovedExperts() {
    if (report_.shards_moved == 0) return;
    if (!report_.expert_set) {
      report_.expert_set.emplace();
      report_.expert_set->experts_expected = report_.spec->num_moe_layers * report_.spec->num_experts;
      report_.expert_set->problem = Cat("expert set ", moved_to_, ": expected its folders in ", kExpertPointerName,
                                        " or in the state folder, got neither: name them with --experts");
    }
    if (report_.expert_set->set_id.empty()) report_.expert_set->set_id = moved_to_;
  }

  // "" when the shards say nothing of the sort.
  std::string MovedText() const {
    if (report_.shards_moved == 0) return "";
    const bool known = !report_.expert_set->folders.empty();
    return Cat(": `deltafin pack --move` moved the experts of ", report_.shards_moved, " shards to expert set ",
               moved_to_, known ? "" : ": name its folders with --experts");
  }

  void CountMissing(const TensorDirectory& directory) {
    for (int64_t slot = 0; slot < directory.slot_count(); ++slot) {
      if (directory.placed(slot)) continue;
      if (slot >= directory.dense_count() && experts_in_set()) {
        ++report_.tensors_in_set;
        continue;
      }
      ++report_.tensors_missing;
      if (report_.examples_missing.size() < kMaxExamples) report_.examples_missing.push_back(directory.Name(slot));
    }
    if (report_.tensors_missing == 0) return;
    // A missing shard has been named already.
    if (report_.shards_missing == 0)
      Problem(Cat(report_.folder, ": ", report_.tensors_missing, " of ", report_.text_tensors,
                  " tensors are in no readable header, such as '", report_.examples_missing.front(), "'", MovedText()));
    else if (report_.shards_moved > 0)
      Problem(report_.folder + MovedText());
  }

  const ExpertFolders& experts_;
  FolderReport report_;
  std::string moved_to_;  // the first set that a shard names
};

}  // namespace

Result<FolderReport> InspectFolder(const std::string& folder, const ExpertFolders& experts) {
  DFIN_TRY_VOID(CheckCheckpointFolder(folder));
  return Inspector(folder, experts).Run();
}

}  // namespace deltafin
