// PackDense: see pack_dense.h. What there is already decides where it goes on; then unit after unit; then the manifest.
#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/dense_model_id.h"
#include "checkpoint/dense_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "pack/dense_encoder.h"
#include "pack/folder_locks.h"
#include "pack/output_file.h"
#include "pack/pack_dense.h"
#include "pack/target_folders.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 8;
constexpr int kDepth = 64;
constexpr uint64_t kWriteBytes = uint64_t{16} << 20;
constexpr uint64_t kManifestRoom = uint64_t{4} << 20;

class DensePacker {
 public:
  DensePacker(const PackDenseOptions& options, const PackDenseProgressFn& progress, CancelToken cancel)
      : options_(options),
        progress_fn_(progress),
        cancel_(cancel),
        pool_(options.threads > 0 ? options.threads : std::min(UsableCores(), kMostThreads)) {}

  Result<PackDenseReport> Run() {
    DFIN_TRY_VOID(Open());
    DFIN_TRY_VOID(FindEarlierWork());
    if (!finished_) {
      DFIN_TRY_VOID(CheckSpaceLeft());
      DFIN_TRY_VOID(WriteUnits());
    }
    DFIN_TRY_VOID(Publish());
    FillReport();
    return std::move(report_);
  }

 private:
  Status Open();
  Status FindEarlierWork();
  Result<std::optional<DenseManifest>> ReadManifest(std::string_view name);
  Status KeepSoundUnits(const DenseManifest& earlier);
  Result<bool> IsSound(const DenseUnit& unit);
  Status CheckSpaceLeft() const;
  Status WriteUnits();
  Status WriteUnit(const EncodedUnit& encoded);
  Status NoteProgress();
  Status Publish();
  void FillReport();

  std::string PathOf(std::string_view name) const { return Cat(folder_, "/", name); }
  void Note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }
  void Tell(const char* phase) {
    progress_.phase = phase;
    if (progress_fn_) progress_fn_(progress_);
  }
  Failure Stopped() const { return Fail(ErrorCode::kCancelled, "packing dense weights: stopped"); }

  const PackDenseOptions& options_;
  const PackDenseProgressFn& progress_fn_;
  const CancelToken cancel_;
  ThreadPool pool_;
  FolderLocks locks_;
  std::string folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<std::unique_ptr<DirectFile>> read_back_;  // a read that hangs keeps its file in use
  std::unique_ptr<IoScheduler> io_;
  int32_t target_drive_ = 0;
  DenseManifest manifest_;  // of the units that are done
  bool finished_ = false;   // found so
  PackDenseProgress progress_;
  PackDenseReport report_;
};

Status DensePacker::Open() {
  DFIN_TRY_VOID(locks_.Take({options_.model}, FolderLocks::Kind::kReads));
  DFIN_TRY(Checkpoint opened, Checkpoint::Open({.folder = options_.model,
                                                .index_cache_folder = options_.state_folder,
                                                .cancel = cancel_,
                                                .experts = ExpertsWanted::kElsewhere}));
  checkpoint_ = std::make_unique<Checkpoint>(std::move(opened));
  if (FullPath(options_.to) == FullPath(options_.model))
    return Fail(ErrorCode::kInvalidArgument, "--to: ", options_.to,
                ": expected a folder of its own, got that of the model");
  DFIN_TRY(const std::vector<std::string> folders, PrepareFolders({{options_.to, 0}}));
  folder_ = folders[0];
  DFIN_TRY_VOID(locks_.Take(folders, FolderLocks::Kind::kWrites));
  DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = options_.io, .depth = kDepth}));
  IoSchedulerOptions io_options;
  io_options.drives = checkpoint_->drives();
  target_drive_ = static_cast<int32_t>(io_options.drives.size());
  io_options.drives.push_back({folder_, 0});
  io_ = std::make_unique<IoScheduler>(std::move(engine), std::move(io_options));
  manifest_.layers = static_cast<int32_t>(checkpoint_->spec().layers.size());
  DFIN_TRY(manifest_.model_id, DenseModelId(*checkpoint_, *io_, cancel_));
  progress_.units_total = manifest_.layers + 1;
  for (int32_t unit = 0; unit <= manifest_.layers; ++unit)
    progress_.bytes_total += DenseSourceBytes(*checkpoint_, unit);
  return {};
}

// Empty when there is none, or a damaged one: then everything is written again.
Result<std::optional<DenseManifest>> DensePacker::ReadManifest(std::string_view name) {
  const std::string path = PathOf(name);
  if (!FileExists(path)) return std::optional<DenseManifest>();
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxDenseManifestBytes));
  Result<DenseManifest> manifest = DenseManifest::FromText(text, path);
  if (!manifest && manifest.error().code() != ErrorCode::kCorrupt) return Failure(std::move(manifest.error()));
  if (!manifest) {
    Note(manifest.error().message() + ": everything is packed again");
    return std::optional<DenseManifest>();
  }
  if (manifest->model_id != manifest_.model_id || manifest->layers != manifest_.layers)
    return Fail(ErrorCode::kCorrupt, path, ": expected no packed dense weights or those of model ",
                ToHex(manifest_.model_id), ", got those of model ", ToHex(manifest->model_id),
                ": give an empty folder");
  return std::optional(std::move(*manifest));
}

Status DensePacker::FindEarlierWork() {
  DFIN_TRY_VOID(RemoveUnpublished(options_.hook, folder_, kDensePrefix));
  const bool any = FileExists(PathOf(kDenseManifestName)) || FileExists(PathOf(kDensePartialName));
  if (const std::vector<std::string> names = ListFiles(folder_, kDensePrefix); !any && !names.empty())
    return Fail(
        ErrorCode::kInvalidArgument, folder_, "/", names[0],
        ": is in the way: expected no file of that name, got one that no manifest in this folder knows: remove it, "
        "or give an empty folder");
  DFIN_TRY(std::optional<DenseManifest> partial, ReadManifest(kDensePartialName));
  DFIN_TRY(std::optional<DenseManifest> published, ReadManifest(kDenseManifestName));
  const std::optional<DenseManifest>& earlier = partial ? partial : published;
  if (earlier) DFIN_TRY_VOID(KeepSoundUnits(*earlier));
  report_.units_kept = static_cast<int32_t>(manifest_.units.size());
  finished_ = !partial && published && manifest_.complete();
  if (finished_) return {};
  // From here on the folder is unfinished: first that is said, then the manifest goes.
  DFIN_TRY_VOID(NoteProgress());
  return RemoveFile(options_.hook, PathOf(kDenseManifestName));
}

Status DensePacker::KeepSoundUnits(const DenseManifest& earlier) {
  for (const DenseUnit& unit : earlier.units) {
    Tell("checking");
    if (cancel_.cancelled()) return Stopped();
    const std::string path = PathOf(manifest_.FileName(unit.unit));
    if (!CheckDenseUnit(unit, *checkpoint_, path)) continue;
    DFIN_TRY(const bool sound, IsSound(unit));
    if (!sound) {
      Note(path + ": not as it was written: it is packed again");
      continue;
    }
    manifest_.units.push_back(unit);
    ++progress_.units_done;
    progress_.bytes_done += DenseSourceBytes(*checkpoint_, unit.unit);
  }
  return {};
}

// Whether the unit's file has the bytes that its checksum says.
Result<bool> DensePacker::IsSound(const DenseUnit& unit) {
  Result<DirectFile> opened = DirectFile::Open(PathOf(manifest_.FileName(unit.unit)));
  if (!opened || opened->size() != unit.bytes) return false;
  const DirectFile* file = read_back_.emplace_back(std::make_unique<DirectFile>(std::move(*opened))).get();
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(AlignUp(unit.bytes, file->alignment())));
  const auto buffer = std::make_shared<AlignedBuffer>(std::move(memory));
  ReadGroup reads(buffer);
  const IoTag tag = io_->NewTag();
  for (uint64_t at = 0; at < unit.bytes; at += kWriteBytes)
    reads.Start(*io_, {file, at, std::min(kWriteBytes, unit.bytes - at), buffer->data() + at}, IoPriority::kBackground,
                tag, target_drive_);
  if (!reads.WaitUnless(cancel_)) {
    io_->Cancel(tag);
    return Stopped();
  }
  // A file that cannot be read is written again, elsewhere on its drive.
  if (!reads.Wait()) return false;
  return Hash64(Bytes(buffer->data(), unit.bytes)) == unit.hash;
}

Status DensePacker::CheckSpaceLeft() const {
  uint64_t needed = kManifestRoom;
  for (int32_t unit = 0; unit <= manifest_.layers; ++unit) {
    if (manifest_.Find(unit) != nullptr) continue;
    const uint64_t bytes = DenseUnitEstimate(*checkpoint_, unit);
    needed += bytes - std::min(bytes, AllocatedBytes(PathOf(manifest_.FileName(unit))));
  }
  DFIN_TRY(const DeviceSpace space, SpaceOf(folder_));
  if (needed <= space.free_bytes) return {};
  return Fail(ErrorCode::kUnavailable, "not enough space: ", folder_, ": about ", FormatBytes(needed), " needed, ",
              FormatBytes(space.free_bytes), " free: free some, or give a folder on another drive");
}

Status DensePacker::WriteUnits() {
  DFIN_TRY(const std::unique_ptr<DenseEncoder> encoder,
           DenseEncoder::Create(*checkpoint_, *io_, pool_, options_.piece_bytes));
  for (int32_t unit = 0; unit <= manifest_.layers; ++unit) {
    if (manifest_.Find(unit) != nullptr) continue;
    Tell("packing");
    const auto progress = [this](uint64_t bytes) {
      progress_.bytes_done += bytes;
      Tell("packing");
    };
    DFIN_TRY(const EncodedUnit encoded, encoder->Encode(unit, progress, cancel_));
    DFIN_TRY_VOID(WriteUnit(encoded));
    const auto at =
        std::find_if(manifest_.units.begin(), manifest_.units.end(), [&](const DenseUnit& u) { return u.unit > unit; });
    manifest_.units.insert(at, encoded.unit);
    DFIN_TRY_VOID(NoteProgress());
    ++progress_.units_done;
    report_.bytes_written += encoded.unit.bytes;
  }
  return {};
}

Status DensePacker::WriteUnit(const EncodedUnit& encoded) {
  DFIN_TRY(const std::unique_ptr<OutputFile> file,
           OutputFile::Open(PathOf(manifest_.FileName(encoded.unit.unit)), options_.hook));
  file->Reserve(encoded.unit.bytes, encoded.unit.bytes);
  for (uint64_t at = 0; at < encoded.unit.bytes; at += kWriteBytes) {
    if (cancel_.cancelled()) return Stopped();
    const uint64_t bytes = std::min(kWriteBytes, encoded.unit.bytes - at);
    DFIN_TRY_VOID(file->Write(at, Bytes(encoded.buffer.data() + at, bytes)));
  }
  DFIN_TRY_VOID(file->SetSize(encoded.unit.bytes));
  DFIN_TRY_VOID(file->Sync());
  SyncFolder(folder_);
  return {};
}

Status DensePacker::NoteProgress() {
  const std::string text = manifest_.ToText();
  return PublishFile(options_.hook, PathOf(kDensePartialName), std::as_bytes(std::span(text)));
}

Status DensePacker::Publish() {
  if (!finished_) {
    Tell("publishing");
    const std::string text = manifest_.ToText();
    DFIN_TRY_VOID(PublishFile(options_.hook, PathOf(kDenseManifestName), std::as_bytes(std::span(text))));
  }
  return RemoveFile(options_.hook, PathOf(kDensePartialName));
}

void DensePacker::FillReport() {
  report_.folder = folder_;
  report_.units = progress_.units_total;
  report_.source_bytes = progress_.bytes_total;
  report_.bytes = manifest_.bytes();
  for (const DenseUnit& unit : manifest_.units)
    for (const DenseTensor& tensor : unit.tensors) {
      if (tensor.dtype != DType::kBf12) continue;
      report_.elements += static_cast<uint64_t>(tensor.shape.elements());
      report_.escapes += tensor.escapes;
      report_.rows += tensor.shape[0];
      report_.whole_rows += tensor.whole_rows;
    }
}

}  // namespace

Result<PackDenseReport> PackDense(const PackDenseOptions& options, const PackDenseProgressFn& progress,
                                  CancelToken cancel) {
  return DensePacker(options, progress, cancel).Run();
}

}  // namespace deltafin
