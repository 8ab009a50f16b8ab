#include "pack/rebalancer.h"

#include <algorithm>
#include <utility>

#include "checkpoint/hex.h"
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

void Rebalancer::TellMissing() {
  for (size_t d = 0; d < plan_.from.size(); ++d) {
    const std::string& folder = plan_.from[d];
    if (!folder.empty() && (FileExists(folder + "/" + plan_.before.index_file) ||
                            FileExists(folder + "/" + ManifestFileName(plan_.before.generation))))
      continue;
    Note(Cat(NameOfDrive(plan_.before, d), folder.empty() ? "" : " in " + folder,
             ": is not there: its bytes come from second copies or the shards"));
  }
}

// What earlier calls copied, and pieces that stay where they are: a drive that is not mounted shows an empty folder.
Status Rebalancer::CheckFilesThere() const {
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) {
      const ExpertTable& table = plan_.after.tables[t];
      const bool first = kind == CopyKind::kPrimary;
      DFIN_TRY_VOID(CheckSlotsThere(NewPieces(plan_, t, kind), slots_done_[t][first ? 0 : 1], plan_.to));
      std::vector<ExpertPieceFile> staying;
      for (const ExpertPieceFile& piece : first ? table.pieces : table.replica_pieces)
        if (!piece.file.starts_with(Cat(kPiecePrefix, plan_.after.generation, "-"))) staying.push_back(piece);
      DFIN_TRY_VOID(CheckSlotsThere(staying, first ? table.slots : table.replica_slots, plan_.to));
    }
  return {};
}

// Records that an unfinished `pack --move` left beyond the set would go with the files that are given up.
Status Rebalancer::CheckMoved() const {
  if (!source_) return {};
  MoveTarget target;
  target.set = ToHex(plan_.before.set_id);
  for (const std::string& folder : plan_.from)
    if (!folder.empty()) target.folders.push_back(folder);
  target.records = target.folders.front() + "/" + ManifestFileName(plan_.before.generation);
  target.model = options_.model;
  target.state_folder = options_.state_folder;
  target.has = [&](uint32_t p) { return p < index_.entries.size() && index_.entries[p].slot != kNoSlot; };
  std::vector<MovedShard> here;
  std::ranges::copy_if(source_->moved, std::back_inserter(here), [&](const auto& s) { return s.set == target.set; });
  return CheckMovedExperts(here, target);
}

Status Rebalancer::LoadRecords() {
  TellMissing();
  DFIN_TRY(index_, LoadIndex(plan_.before, plan_.from));
  DFIN_TRY_VOID(CheckMoved());
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
  DFIN_TRY_VOID(CheckFilesThere());
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
    if (!FileExists(vacated.path))
      return Fail(ErrorCode::kIo, vacated.path, ": expected the file that pieces of the set are in, got none: is the ",
                  "drive mounted? Give the same command again when it is back");
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
  if (!published_) DFIN_TRY_VOID(LoadRecords());
  if (unfinished_) {
    DFIN_TRY(journal_, PackJournal::Continue(plan_.to[0], *unfinished_, options_.hook));
  } else {
    DFIN_TRY(journal_, PackJournal::Create(plan_.to[0], header_, options_.hook));
  }
  if (!published_) {
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
