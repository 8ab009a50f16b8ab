#include "pack/packer.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "pack/publish.h"
#include "pack/set_files.h"
#include "pack/target_folders.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 4;  // packing is copying: more threads than this outrun any drives

}  // namespace

void Packer::Note(std::string text) {
  if (options_.on_note) options_.on_note(text);
  report_.notes.push_back(std::move(text));
}

void Packer::Tell(const std::string& phase) {
  progress_.phase = phase;
  if (progress_fn_) progress_fn_(progress_);
}

Status Packer::Prepare() {
  // A shard that gives up its experts must not be read by another pack at the time.
  FolderLocks& locks = options_.locks != nullptr ? *options_.locks : own_locks_;
  DFIN_TRY_VOID(locks.Take({options_.model}, options_.move ? FolderLocks::Kind::kWrites : FolderLocks::Kind::kReads));
  DFIN_TRY(source_, PackSource::Open(options_.model, options_.state_folder, options_.io, cancel_));
  usage_ = options_.usage;
  if (usage_.empty() && options_.usage_of && options_.replica_bytes > 0)
    usage_ = options_.usage_of(source_.spec, source_.fingerprint);
  if (options_.replica_bytes > 0 && options_.targets.size() < 2)
    return Fail(ErrorCode::kInvalidArgument,
                "--replicas: expected at least two folders, since a second copy lies on "
                "another drive, got ",
                options_.targets.size());
  DFIN_TRY(setup_, PreparePack(options_, source_, locks));
  if (setup_.published) {
    // Killed while tidying up: what it was doing is done; the rest is for a generation of its own.
    DFIN_TRY_VOID(FinishPublished());
    DFIN_TRY(setup_, PreparePack(options_, source_, locks));
  }
  for (const std::string& note : setup_.notes) Note(note);
  const SetState& state = setup_.state;
  const uint64_t smallest = state.manifest.tables.front().record_bytes;
  if (options_.replica_bytes > 0 && options_.replica_bytes < smallest)
    return Fail(ErrorCode::kInvalidArgument, "--replicas: expected room for one expert at least, ", smallest,
                " bytes, got ", options_.replica_bytes);
  for (const ExpertTable& table : state.manifest.tables)
    largest_record_ = std::max(largest_record_, table.record_bytes);
  progress_.bytes_done = progress_.bytes_resumed = setup_.resumed_bytes;
  progress_.bytes_total = setup_.resumed_bytes;
  const uint64_t expected = state.manifest.tables.front().record_bytes;
  uint64_t missing = 0;
  for (const SourceExpert& expert : source_.experts) missing += state.has(expert.position) ? 0 : 1;
  for (const ExpertSetEntry& entry : state.entries) progress_.records_done += entry.slot != kNoSlot ? 1 : 0;
  progress_.records_total = progress_.records_done + missing;
  progress_.bytes_total += missing * expected;
  if (progress_.records_total == 0)
    return Fail(ErrorCode::kNotFound, options_.model, ": expected shards with experts, got none yet");
  uint64_t& model_id = setup_.state.manifest.model_id;
  const bool named = model_id == 0 && source_.model_id != 0;
  if (named) model_id = source_.model_id;
  work_to_publish_ = named || missing > 0 || setup_.journal.has_value() || !ChooseCopies().empty();
  return CheckSpaceLeft();
}

Status Packer::FinishPublished() {
  const ExpertSetManifest& m = setup_.state.manifest;
  DFIN_TRY(PackJournal journal, PackJournal::Continue(setup_.folders[0], *setup_.journal, options_.hook));
  (void)PublishPointer(options_.hook, options_.model, options_.state_folder, m.set_id, setup_.folders);
  DFIN_TRY_VOID(RemoveOlder(options_.hook, m.generation, setup_.folders));
  return journal.Remove();
}

Status Packer::CheckSpaceLeft() const {
  const SetState& state = setup_.state;
  const ExpertTable& first = state.manifest.tables.front();
  const uint64_t missing = progress_.records_total - progress_.records_done;
  uint64_t copies = 0;
  for (const ExpertTable& table : state.manifest.tables) copies += table.replica_slots;
  copies = std::min(progress_.records_total - std::min(copies, progress_.records_total),
                    options_.replica_bytes / first.record_bytes);
  std::vector<SpaceNeed> needs;
  for (const std::string& folder : setup_.folders)
    needs.push_back({folder, 2 * IndexFileBytes(state.manifest) + kMaxManifestBytes / 8});
  const auto add = [&](const std::vector<ExpertPieceFile>& pieces, uint64_t slots) {
    for (const ExpertPieceFile& piece : pieces) {
      const auto drive = static_cast<size_t>(piece.cut.drive);
      const uint64_t there = AllocatedBytes(setup_.folders[drive] + "/" + piece.file);
      needs[drive].bytes += slots * piece.stride - std::min(slots * piece.stride, there);
    }
  };
  for (const ExpertTable& table : state.manifest.tables) {
    add(table.pieces, table.slots + (&table == &first ? missing : 0));
    add(table.replica_pieces, table.replica_slots + (&table == &first ? copies : 0));
  }
  uint64_t freed = 0, largest = 0, in_shard = 0;
  for (size_t i = 0; options_.move && i < source_.experts.size(); ++i) {
    const bool same = i > 0 && source_.experts[i].shard == source_.experts[i - 1].shard;
    in_shard = (same ? in_shard : 0) + static_cast<uint64_t>(source_.geometry().record_bytes());
    largest = std::max(largest, in_shard);
    freed += static_cast<uint64_t>(source_.geometry().record_bytes());
  }
  return CheckSpace(needs, options_.model, freed - std::min(freed, 2 * largest));
}

Status Packer::OpenOutputs() {
  pool_ = std::make_unique<ThreadPool>(std::min(UsableCores(), kMostThreads));
  DFIN_TRY(io_, MakeScheduler(options_.io, options_.model, setup_.folders));
  if (!work_to_publish_) return {};
  if (setup_.journal) {
    DFIN_TRY(journal_, PackJournal::Continue(setup_.folders[0], *setup_.journal, options_.hook));
  } else {
    DFIN_TRY(journal_, PackJournal::Create(setup_.folders[0], setup_.header, options_.hook));
  }
  outputs_ = std::make_unique<PieceOutputs>(setup_.folders, options_.hook);
  writers_ = std::make_unique<DriveWriters>(setup_.folders.size());
  batches_ = std::make_unique<JournaledBatches>(*writers_, *outputs_, *journal_, options_.batch_bytes);
  return {};
}

Status Packer::Publish() {
  Tell("publishing");
  const ExpertSetManifest& m = setup_.state.manifest;
  if (work_to_publish_) {
    for (const ExpertTable& table : m.tables) {
      if (table.slots > 0) DFIN_TRY_VOID(outputs_->Open(table.pieces, 0));
      if (table.replica_slots > 0) DFIN_TRY_VOID(outputs_->Open(table.replica_pieces, 0));
      DFIN_TRY_VOID(outputs_->SetSizes(table.pieces, table.slots));
      DFIN_TRY_VOID(outputs_->SetSizes(table.replica_pieces, table.replica_slots));
    }
    for (const std::string& path : outputs_->CachedFiles())
      Note(path + ": its file system takes no direct writes, so they went through the page cache");
    const auto [manifest, index] = setup_.state.Finish();
    DFIN_TRY_VOID(PublishSet(options_.hook, manifest, index, setup_.folders));
  }
  PointerPlace pointer = PublishPointer(options_.hook, options_.model, options_.state_folder, m.set_id, setup_.folders);
  report_.pointer_file = pointer.path;
  if (!pointer.note.empty()) Note(pointer.note);
  std::vector<std::string> shards;
  for (size_t s = 0; s < source_.shards.size(); ++s) shards.push_back(source_.ShardName(static_cast<int32_t>(s)));
  DFIN_TRY_VOID(TidyModel(options_.hook, options_.model, shards));
  if (!work_to_publish_) return {};
  DFIN_TRY_VOID(RemoveOlder(options_.hook, m.generation, setup_.folders));
  return journal_->Remove();
}

void Packer::FillReport() {
  const SetState& state = setup_.state;
  report_.folders = setup_.folders;
  report_.generation = state.manifest.generation - (work_to_publish_ ? 0 : 1);
  for (uint32_t p = 0; p < state.entries.size(); ++p) {
    const ExpertSetEntry& entry = state.entries[p];
    if (entry.slot == kNoSlot) continue;
    ++report_.records;
    report_.record_bytes = std::max(report_.record_bytes, state.table(p).record_bytes);
    report_.replica_records += entry.replica_slot != kNoSlot ? 1 : 0;
    if (state.manifest.compact) report_.matrices_whole += static_cast<uint64_t>(WholeMatrices(entry.bases));
  }
  report_.records_missing = state.entries.size() - report_.records;
}

Result<PackReport> Packer::Run() {
  DFIN_TRY_VOID(Prepare());
  DFIN_TRY_VOID(OpenOutputs());
  const bool spread = work_to_publish_ && options_.replica_bytes > 0 && usage_.size() != setup_.state.entries.size();
  if (spread)
    Note(
        "how often experts are used is not known yet, so second copies are spread evenly over the layers: run the "
        "model for a while and pack again for copies of the most used ones");
  Status done = PackAll();
  if (done) done = PackCopies(ChooseCopies());
  if (!done) {
    // What was finished need not be done again.
    if (batches_ != nullptr && writers_->status()) (void)batches_->Flush();
    return Failure(std::move(done.error()));
  }
  DFIN_TRY_VOID(Publish());
  FillReport();
  return std::move(report_);
}

Result<PackReport> Pack(const PackOptions& options, const PackProgressFn& progress, CancelToken cancel) {
  return Packer(options, progress, cancel).Run();
}

}  // namespace deltafin
