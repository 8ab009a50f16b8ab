#include "engine/weight_files.h"

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

}  // namespace

Result<WeightFiles> WeightFiles::Open(const EngineOptions& options, Logger& logger, CancelToken cancel,
                                      const std::function<void(uint64_t done, uint64_t total)>& progress) {
  std::vector<std::string> folders = options.experts;
  const bool noted = folders.empty();
  if (noted) {
    DFIN_TRY(folders, FindExpertFolders(options.model, options.state_dir));
  }
  if (options.verify_reads && folders.empty())
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
                             .reads_buffered = reads_buffered}));
  files.checkpoint = std::make_unique<Checkpoint>(std::move(opened));
  files.drives = files.checkpoint->drives();
  if (files.drives.size() == 1) AddRates(options.state_dir, {options.model}, files.drives);
  files.first_set_drive = static_cast<int32_t>(files.drives.size());
  if (!files.checkpoint->index_cache_note().empty()) logger.WarnOnce(files.checkpoint->index_cache_note());
  WarnAboutBufferedFiles(*files.checkpoint, reads_buffered, logger);
  if (folders.empty()) return files;

  Result<ExpertSet> set =
      ExpertSet::Open(folders, files.checkpoint->spec(), ExpertSet::Need::kAllRecords, reads_buffered);
  if (!set)
    return FailWith(
        std::move(set),
        noted ? "experts, in the folders that pack noted for this model (--experts names others)" : "--experts");
  files.set = std::make_unique<ExpertSet>(std::move(*set));
  for (const std::string& warning : files.set->warnings()) logger.Warn(warning);
  for (size_t d = 0; d < files.set->folders().size(); ++d) {
    files.drives.push_back(files.set->drives()[d]);
    if (files.set->folders()[d].empty()) files.drives.back().name += " (missing)";
  }
  AddRates(options.state_dir, files.set->folders(),
           std::span(files.drives).subspan(static_cast<size_t>(files.first_set_drive)));
  return files;
}

std::unique_ptr<ExpertStore> WeightFiles::MakeStore(IoScheduler& io, bool verify_reads) const {
  if (set == nullptr) return std::make_unique<ExpertStore>(*checkpoint, io);
  return std::make_unique<ExpertStore>(*set, first_set_drive, io, ExpertStoreOptions{.verify_reads = verify_reads});
}

Status WeightFiles::CheckSet(IoScheduler& io, CancelToken cancel) const {
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
