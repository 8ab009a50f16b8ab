#include "pack/rebalancer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/integrity.h"
#include "pack/publish.h"

namespace deltafin {

void Rebalancer::Note(std::string text) {
  if (options_.on_note) options_.on_note(text);
  report_.notes.push_back(std::move(text));
}

void Rebalancer::Tell(const std::string& phase) {
  progress_.phase = phase;
  if (progress_fn_) progress_fn_(progress_);
}

// True when a journal of the same rebalance was found, and plan_ is what it says.
Result<bool> Rebalancer::FindUnfinished(const std::vector<std::string>& to) {
  std::vector<std::string> folders = to;
  for (const std::string& folder : given_from_) folders.push_back(FullPath(folder));
  for (const std::string& folder : folders) {
    DFIN_TRY(std::optional<PackJournal::Contents> found, PackJournal::Read(folder));
    if (!found) continue;
    const std::string path = folder + "/" + kJournalName;
    DFIN_TRY(const Json header, ParseJson(found->header, path));
    if (header.value("work", "") != "rebalance")
      return Fail(ErrorCode::kInvalidArgument, path, ": an unfinished pack: finish it first, with the options of then");
    if (!header.contains("to") || header["to"] != Json(to))
      return Fail(ErrorCode::kInvalidArgument, path, ": an unfinished rebalance with other options: to was ",
                  header.contains("to") ? DumpJson(header["to"]) : "not known", ", is now ", DumpJson(Json(to)),
                  ": give the folders of then to finish it");
    DFIN_TRY(plan_.before, ExpertSetManifest::FromText(header.value("before", ""), path));
    DFIN_TRY(plan_.after, ExpertSetManifest::FromText(header.value("after", ""), path));
    plan_.from = header.value("from", std::vector<std::string>());
    plan_.to = to;
    if (plan_.from.size() != plan_.before.drives.size() || to.size() != plan_.after.drives.size() ||
        plan_.before.tables.size() != plan_.after.tables.size())
      return Fail(ErrorCode::kCorrupt, path, ": names other drives than its manifests");
    unfinished_ = std::move(found);
    return true;
  }
  return false;
}

Status Rebalancer::CheckTargets(const std::vector<std::string>& to) const {
  for (const std::string& folder : to) {
    const bool stays = std::find(plan_.from.begin(), plan_.from.end(), folder) != plan_.from.end();
    DFIN_TRY_VOID(CheckNothingInTheWay(
        {folder}, stays ? Cat(kPiecePrefix, plan_.after.generation, "-") : std::string(kPiecePrefix)));
    if (!stays) DFIN_TRY_VOID(CheckNothingInTheWay({folder}, kManifestPrefix));
  }
  return {};
}

Status Rebalancer::CheckSpaceFor(const std::vector<std::string>& to) const {
  std::vector<SpaceNeed> needs;
  for (const std::string& folder : to) needs.push_back({folder, 2 * plan_.before.index_bytes});
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica})
      for (const ExpertPieceFile& piece : NewPieces(plan_, t, kind)) {
        const ExpertTable& table = plan_.after.tables[t];
        needs[static_cast<size_t>(piece.cut.drive)].bytes +=
            piece.stride * (kind == CopyKind::kPrimary ? table.slots : table.replica_slots);
      }
  return CheckSpace(needs, "", 0);
}

Status Rebalancer::NewPlan(const std::vector<std::string>& to) {
  std::vector<std::string> from;
  for (const std::string& folder : given_from_) from.push_back(FullPath(folder));
  if (from.empty())
    return Fail(ErrorCode::kNotFound, options_.model, ": expected a note of where its expert set is, got none: name ",
                "its folders with --experts");
  // The same command after it is done: the set is at its new place already.
  for (const std::string& folder : to)
    if (std::find(from.begin(), from.end(), folder) == from.end() && !ListFiles(folder, kManifestPrefix).empty())
      from.push_back(folder);
  DFIN_TRY(const SetCandidate set, FindNewest(from));
  std::vector<ExpertSetDrive> drives;
  for (size_t d = 0; d < to.size(); ++d)
    drives.push_back({to[d].substr(to[d].rfind('/') + 1), options_.targets[d].bytes_per_second});
  const bool all = std::all_of(drives.begin(), drives.end(), [](const auto& d) { return d.bytes_per_second > 0; });
  for (ExpertSetDrive& drive : drives)
    if (!all) drive.bytes_per_second = 0;
  plan_ = PlanRebalance(set, to, drives);
  nothing_to_do_ = ChangesNothing(plan_);
  if (nothing_to_do_) return {};
  for (size_t d = 0; d < plan_.from.size(); ++d)
    if (plan_.from[d].empty())
      Note(Cat("drive ", d, " of the set ('", plan_.before.drives[d].name,
               "') is not there: its bytes come from second copies or the shards"));
  for (const ExpertTable& table : plan_.before.tables)
    if (to.size() < 2 && table.replica_slots > 0) Note("second copies are given up: they need another drive");
  DFIN_TRY_VOID(CheckTargets(to));
  DFIN_TRY_VOID(CheckSpaceFor(to));
  plan_.after.index_bytes = IndexFileBytes(plan_.after);
  Json header;
  header["work"] = "rebalance";
  header["to"] = to;
  header["from"] = plan_.from;
  header["before"] = plan_.before.ToText();
  header["after"] = plan_.after.ToText();
  header_ = DumpJson(header);
  return {};
}

Status Rebalancer::Prepare() {
  DFIN_TRY(const std::vector<std::string> to, PrepareFolders(options_.targets));
  for (const std::string& note : SharedDevices(to)) Note(note);
  DFIN_TRY(const bool resumed, FindUnfinished(to));
  if (!resumed) DFIN_TRY_VOID(NewPlan(to));
  published_ = resumed && IsPublished(plan_.after, to);
  if (Result<PackSource> source = PackSource::Open(options_.model, "", options_.io, cancel_)) {
    if (!source->MayBe(plan_.before.model_id))
      return Fail(ErrorCode::kInvalidArgument, options_.model,
                  ": expected the model that the expert set was packed from, got "
                  "another one: nothing was changed");
    source_ = std::move(*source);
  } else if (source.error().code() == ErrorCode::kCancelled) {
    return Failure(std::move(source.error()));
  }
  return {};
}

Status Rebalancer::LoadRecords() {
  DFIN_TRY(index_, LoadIndex(plan_.before, plan_.from));
  chunk_starts_ = index_.ChunkStarts(plan_.before);
  const size_t tables = plan_.before.tables.size();
  slots_done_.assign(tables, {0, 0});
  positions_.resize(tables);
  uint64_t largest = plan_.before.page;
  for (size_t t = 0; t < tables; ++t) {
    positions_[t][0].resize(plan_.before.tables[t].slots);
    positions_[t][1].resize(plan_.before.tables[t].replica_slots);
    largest = std::max(largest, plan_.before.tables[t].record_bytes);
  }
  for (uint32_t p = 0; p < index_.entries.size(); ++p) {
    const ExpertSetEntry& entry = index_.entries[p];
    if (entry.slot != kNoSlot) positions_[entry.table][0][entry.slot] = p;
    if (entry.replica_slot != kNoSlot) positions_[entry.table][1][entry.replica_slot] = p;
  }
  if (unfinished_)
    for (const JournalEntry& entry : unfinished_->entries)
      if (entry.kind == JournalKind::kMoved && entry.position / 2 < tables) {
        uint32_t& done = slots_done_[entry.position / 2][entry.position % 2];
        done = std::max(done, entry.slot);
      }
  for (size_t t = 0; t < tables; ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica})
      DFIN_TRY_VOID(
          CheckSlotsThere(NewPieces(plan_, t, kind), slots_done_[t][kind == CopyKind::kPrimary ? 0 : 1], plan_.to));
  DFIN_TRY(set_, SetFiles::Open(plan_.before, plan_.from));
  DFIN_TRY(io_, MakeScheduler(options_.io, options_.model, plan_.from));
  DFIN_TRY(scratch_, AlignedBuffer::Create(largest));
  return {};
}

Status Rebalancer::Publish() {
  Tell("publishing");
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) {
      const ExpertTable& table = plan_.after.tables[t];
      const uint32_t slots = kind == CopyKind::kPrimary ? table.slots : table.replica_slots;
      const std::vector<ExpertPieceFile> pieces = NewPieces(plan_, t, kind);
      if (slots == 0) continue;
      DFIN_TRY_VOID(outputs_->Open(pieces, 0));
      DFIN_TRY_VOID(outputs_->SetSizes(pieces, slots));
    }
  ExpertSetIndex index = index_;
  for (ExpertSetEntry& entry : index.entries)
    if (entry.slot != kNoSlot && plan_.after.tables[entry.table].replica_slots == 0) entry.replica_slot = kNoSlot;
  ExpertSetManifest manifest = plan_.after;
  manifest.index_bytes = IndexFileBytes(manifest);
  manifest.index_hash = Hash64(index.ToBytes(manifest));
  return PublishSet(options_.hook, manifest, index, plan_.to);
}

Status Rebalancer::FreeVacated() {
  Tell("freeing what moved");
  for (const Vacated& vacated : VacatedRanges(plan_)) {
    if (vacated.whole_file) {
      DFIN_TRY_VOID(RemoveFile(options_.hook, vacated.path));
      continue;
    }
    DFIN_TRY(const auto file, OutputFile::Open(vacated.path, options_.hook));
    for (uint64_t slot = 0; slot < vacated.slots; ++slot) {
      if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, "stopped");
      for (const auto& [begin, end] : vacated.ranges)
        DFIN_TRY_VOID(file->Erase(slot * vacated.stride + begin, end - begin));
    }
    DFIN_TRY_VOID(file->Sync());
  }
  return {};
}

Result<PackReport> Rebalancer::Run() {
  DFIN_TRY_VOID(Prepare());
  report_.folders = plan_.to;
  report_.generation = nothing_to_do_ ? plan_.before.generation : plan_.after.generation;
  report_.records = static_cast<uint64_t>(plan_.after.records);
  report_.records_missing = static_cast<uint64_t>(plan_.after.moe_layers * plan_.after.experts) - report_.records;
  for (const ExpertTable& table : plan_.after.tables) {
    report_.record_bytes = std::max(report_.record_bytes, table.record_bytes);
    report_.replica_records += table.replica_slots;
  }
  if (nothing_to_do_) {
    Note("every drive has its share already: nothing was moved");
    return std::move(report_);
  }
  if (unfinished_) {
    DFIN_TRY(journal_, PackJournal::Continue(plan_.to[0], *unfinished_, options_.hook));
  } else {
    DFIN_TRY(journal_, PackJournal::Create(plan_.to[0], header_, options_.hook));
  }
  if (!published_) {
    DFIN_TRY_VOID(LoadRecords());
    outputs_ = std::make_unique<PieceOutputs>(plan_.to, options_.hook);
    writers_ = std::make_unique<DriveWriters>(plan_.to.size());
    batches_ = std::make_unique<JournaledBatches>(*writers_, *outputs_, *journal_, options_.batch_bytes);
    const Status copied = CopyAll();
    if (!copied) {
      if (writers_->status()) (void)batches_->Flush();
      return Failure(copied.error());
    }
    DFIN_TRY_VOID(Publish());
  }
  PointerPlace pointer =
      PublishPointer(options_.hook, options_.model, options_.state_folder, plan_.after.set_id, plan_.to);
  report_.pointer_file = pointer.path;
  if (!pointer.note.empty()) Note(pointer.note);
  DFIN_TRY_VOID(TidyModel(options_.hook, options_.model, {}));
  std::vector<std::string> folders = plan_.to;
  for (const std::string& folder : plan_.from)
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  DFIN_TRY_VOID(RemoveOlder(options_.hook, plan_.after.generation, folders));
  DFIN_TRY_VOID(FreeVacated());
  DFIN_TRY_VOID(journal_->Remove());
  return std::move(report_);
}

Result<PackReport> Rebalance(const PackOptions& options, const std::vector<std::string>& from,
                             const PackProgressFn& progress, CancelToken cancel) {
  return Rebalancer(options, from, progress, cancel).Run();
}

}  // namespace deltafin
