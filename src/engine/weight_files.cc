#include "engine/weight_files.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/units.h"
#include "checkpoint/dense_model_id.h"
#include "checkpoint/expert_model_id.h"
#include "io/drive_profile.h"

namespace deltafin {
namespace {

// Measured rates, where `deltafin drives` has been run.
void AddRates(const std::string& state_folder, const std::vector<std::string>& folders, std::span<DriveInfo> drives) {
  if (state_folder.empty()) return;
  const std::vector<double> rates = ProfiledRates(state_folder, folders);
  for (size_t i = 0; i < drives.size(); ++i)
    if (rates[i] > 0) drives[i].bytes_per_second = rates[i];
}

void WarnAboutBufferedFiles(const Checkpoint& checkpoint, const ReadsBuffered& by_choice, Logger& logger) {
  if (by_choice(checkpoint.folder())) return;
  for (int i = 0; i < checkpoint.shard_count(); ++i) {
    if (!checkpoint.shard(i).buffered()) continue;
    logger.Warn(Cat(checkpoint.shard(i).path(),
                    ": the file system refuses direct reads, so the page cache is used: "
                    "slower, and its memory is not in the plan"));
    return;
  }
}

// 0 when it is not known.
uint64_t DeviceOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_dev) : 0;
}

// The drive of `files` that `folder` lies on too, or -1: one drive must not have two queues.
int32_t DriveOf(const WeightFiles& files, const std::string& folder) {
  const uint64_t device = DeviceOf(folder);
  for (int i = 0; device != 0 && i < files.checkpoint->shard_count(); ++i)
    if (DeviceOf(files.checkpoint->shard(i).path()) == device) return files.checkpoint->shard_drive(i);
  if (device == 0 || files.set == nullptr) return -1;
  const std::vector<std::string>& folders = files.set->folders();
  const auto it = std::find_if(folders.begin(), folders.end(),
                               [&](const std::string& f) { return !f.empty() && DeviceOf(f) == device; });
  return it == folders.end() ? -1 : files.first_set_drive + static_cast<int32_t>(it - folders.begin());
}

}  // namespace

Status WeightFiles::OpenDense(const EngineOptions& options, const ReadsBuffered& reads_buffered, Logger& logger) {
  if (options.dense.empty()) return {};
  Result<DenseSet> opened = DenseSet::Open(options.dense, *checkpoint, reads_buffered);
  if (!opened) return FailWith(std::move(opened), "--dense");
  dense = std::make_unique<DenseSet>(std::move(*opened));
  if (dense->file(0).buffered() && !reads_buffered(options.dense))
    logger.Warn(
        Cat(dense->file(0).path(),
            ": the file system refuses direct reads, so the page cache is used: slower, and its memory is not in "
            "the plan"));
  dense_drive = DriveOf(*this, options.dense);
  if (dense_drive >= 0) return {};
  dense_drive = static_cast<int32_t>(drives.size());
  drives.push_back({options.dense, 0});
  AddRates(options.state_dir, {options.dense}, std::span(drives).last(1));
  return {};
}

Result<WeightFiles> WeightFiles::Open(const EngineOptions& options, Logger& logger, CancelToken cancel,
                                      const std::function<void(uint64_t done, uint64_t total)>& progress) {
  std::vector<std::string> folders = options.experts;
  const bool noted = folders.empty();
  if (noted) {
    DFIN_TRY(folders, FindExpertFolders(options.model, options.state_dir));
  }
  const bool streamed = folders.empty() && IsStreamedFolder(options.model);
  if (options.verify_reads && folders.empty() && !streamed)
    return Fail(
        ErrorCode::kInvalidArgument,
        "--verify-reads: shards have no checksums to compare with: pack the experts (deltafin pack), or leave it out");
  const ReadsBuffered reads_buffered = [&options](const std::string& folder) {
    return !options.state_dir.empty() && ProfiledBuffered(options.state_dir, folder);
  };
  WeightFiles files;
  DFIN_TRY(Checkpoint opened,
           Checkpoint::Open({.folder = options.model,
                             .index_cache_folder = options.state_dir,
                             .cancel = cancel,
                             .progress = progress,
                             .experts = folders.empty() ? ExpertsWanted::kInShards : ExpertsWanted::kElsewhere,
                             .reads_buffered = reads_buffered,
                             .may_be_streamed = streamed}));
  files.checkpoint = std::make_unique<Checkpoint>(std::move(opened));
  files.drives = files.checkpoint->drives();
  if (files.drives.size() == 1) AddRates(options.state_dir, {options.model}, files.drives);
  files.first_set_drive = static_cast<int32_t>(files.drives.size());
  if (!files.checkpoint->index_cache_note().empty()) logger.WarnOnce(files.checkpoint->index_cache_note());
  WarnAboutBufferedFiles(*files.checkpoint, reads_buffered, logger);
  DFIN_TRY_VOID(files.OpenStream(options, logger, streamed));
  if (!folders.empty()) DFIN_TRY_VOID(files.OpenSet(folders, noted, options, reads_buffered, logger));
  DFIN_TRY_VOID(files.OpenDense(options, reads_buffered, logger));
  return files;
}

Status WeightFiles::OpenStream(const EngineOptions& options, Logger& logger, bool streamed) {
  const StreamOptions& wanted = options.stream;
  if (!streamed && wanted.keep_experts)
    return Fail(ErrorCode::kInvalidArgument,
                "--keep-experts: expected a model whose experts are fetched as they are used, got one that has them all: leave it out");
  if (!streamed) return {};
  const ModelSpec& spec = checkpoint->spec();
  const auto record = static_cast<uint64_t>(ExpertGeometry(spec).record_bytes());
  const uint64_t least = record * static_cast<uint64_t>(2 * spec.num_experts_per_token);
  if (wanted.keep_experts && *wanted.keep_experts < least)
    return Fail(ErrorCode::kInvalidArgument, "--keep-experts ", FormatBytes(*wanted.keep_experts),
                ": expected at least ", FormatBytes(least), ", the experts of two layers of a token");
  const StreamFolder::Use use = wanted.offline ? StreamFolder::Use::kRead : StreamFolder::Use::kFetch;
  DFIN_TRY(stream, StreamFolder::Open(options.model, use, wanted.keep_experts.value_or(0)));
  if (const uint64_t damaged = stream->totals().damaged_entries; damaged > 0)
    logger.Warn(Cat(options.model, "/", kPartialFolder, "/", kPresenceName, ": ", damaged,
                    " entries are damaged: what they speak of is fetched again when it is wanted"));
  return {};
}

Status WeightFiles::OpenSet(const std::vector<std::string>& folders, bool noted, const EngineOptions& options,
                            const ReadsBuffered& reads_buffered, Logger& logger) {
  Result<ExpertSet> opened = ExpertSet::Open(folders, checkpoint->spec(), ExpertSet::Need::kAllRecords, reads_buffered);
  if (!opened)
    return FailWith(
        std::move(opened),
        noted ? "experts, in the folders that pack noted for this model (--experts names others)" : "--experts");
  set = std::make_unique<ExpertSet>(std::move(*opened));
  for (const std::string& warning : set->warnings()) logger.Warn(warning);
  for (size_t d = 0; d < set->folders().size(); ++d) {
    drives.push_back(set->drives()[d]);
    if (set->folders()[d].empty()) drives.back().name += " (missing)";
  }
  AddRates(options.state_dir, set->folders(), std::span(drives).subspan(static_cast<size_t>(first_set_drive)));
  return {};
}

std::unique_ptr<ExpertStore> WeightFiles::MakeStore(IoScheduler& io, bool verify_reads) const {
  if (stream != nullptr)
    return std::make_unique<ExpertStore>(LocateInStream(*checkpoint, *stream), io,
                                         ExpertStoreOptions{.verify_reads = true});
  if (set == nullptr) return std::make_unique<ExpertStore>(*checkpoint, io);
  return std::make_unique<ExpertStore>(*set, first_set_drive, io, ExpertStoreOptions{.verify_reads = verify_reads});
}

Result<std::unique_ptr<StreamedExperts>> WeightFiles::MakeStream(const EngineOptions& options, ExpertSource& disk,
                                                                 const RemoteFilesFactory& remote_files,
                                                                 const Clock& clock) const {
  if (stream == nullptr) return std::unique_ptr<StreamedExperts>();
  std::unique_ptr<RemoteFiles> remote;
  if (!options.stream.offline && !remote_files)
    return Fail(ErrorCode::kUnsupported, options.model,
                ": expected all experts, got a folder whose experts are fetched as they are used, which this command "
                "does not do: give --offline, or fetch the rest with `deltafin setup` first");
  if (!options.stream.offline) {
    DFIN_TRY(remote, remote_files(stream->manifest()));
  }
  return std::make_unique<StreamedExperts>(
      *checkpoint, *stream, disk, std::move(remote), StreamedExpertsOptions{.connections = options.stream.connections},
      clock);
}

Status WeightFiles::CheckModel(IoScheduler& io, CancelToken cancel) const {
  if (dense != nullptr) {
    DFIN_TRY(const uint64_t model_id, DenseModelId(*checkpoint, io, cancel));
    DFIN_TRY_VOID(dense->CheckModel(model_id));
  }
  if (set == nullptr) return {};
  DFIN_TRY(const uint64_t model_id, ExpertModelId(*checkpoint, io, cancel));
  return CheckExpertModel(set->manifest(), model_id);
}

bool WeightFiles::copies() const {
  if (set == nullptr) return false;
  for (const ExpertTable& table : set->manifest().tables)
    if (table.replica_slots > 0) return true;
  return false;
}

}  // namespace deltafin
