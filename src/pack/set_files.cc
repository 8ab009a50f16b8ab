#include "pack/set_files.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>

#include "base/json.h"
#include "checkpoint/hex.h"

namespace deltafin {

std::string IndexFileName(uint64_t generation) { return Cat(kManifestPrefix, generation, ".index"); }

SetCandidate NewestOf(const FoundSets& found) {
  const auto complete = std::find_if(found.candidates.begin(), found.candidates.end(), IsComplete);
  return complete == found.candidates.end() ? found.candidates.front() : *complete;
}

Result<SetCandidate> FindNewest(const std::vector<std::string>& folders) {
  DFIN_TRY(const FoundSets found, FindSets(folders));
  return NewestOf(found);
}

std::string NameOfDrive(const ExpertSetManifest& manifest, size_t drive) {
  return Cat("drive ", drive, " ('", manifest.drives[drive].name, "') of expert set ", ToHex(manifest.set_id),
             ", generation ", manifest.generation);
}

std::string WhyMissing(const FoundSets& found, const SetCandidate& chosen, const std::vector<std::string>& given) {
  std::string why;
  const auto add = [&](const std::string& text) { why += Cat(why.empty() ? "" : "; ", text); };
  for (const std::string& problem : found.problems) add(problem);
  for (const std::string& folder : given) {
    const auto holds = [&](const SetCandidate& c) { return std::ranges::find(c.folders, folder) != c.folders.end(); };
    if (holds(chosen)) continue;
    const auto other = std::ranges::find_if(found.candidates, holds);
    if (other != found.candidates.end())
      add(Cat(folder, ": holds only generation ", other->manifest.generation, " of the set"));
  }
  return why.empty() ? "none of the given folders is it" : why;
}

bool IsComplete(const SetCandidate& candidate) {
  return std::find(candidate.folders.begin(), candidate.folders.end(), "") == candidate.folders.end();
}

Result<ExpertSetIndex> LoadIndex(const ExpertSetManifest& manifest, const std::vector<std::string>& folders) {
  std::optional<Error> first;
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    const std::string path = folder + "/" + manifest.index_file;
    Result<std::string> bytes = ReadWholeFile(path, manifest.index_bytes);
    Result<ExpertSetIndex> index =
        bytes ? ExpertSetIndex::FromBytes(std::as_bytes(std::span(*bytes)), manifest, true, path)
              : Result<ExpertSetIndex>(Failure(bytes.error()));
    if (index) return index;
    if (!first) first = std::move(index.error());
  }
  if (first) return Failure(std::move(*first));
  return Fail(ErrorCode::kNotFound, manifest.index_file, ": no folder of the set is there");
}

Result<SetFiles> SetFiles::Open(const ExpertSetManifest& manifest, const std::vector<std::string>& folders) {
  SetFiles set;
  set.manifest_ = manifest;
  set.folders_ = folders;
  set.files_.resize(manifest.tables.size());
  for (size_t t = 0; t < manifest.tables.size(); ++t) {
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) {
      std::vector<DirectFile>& files = set.files_[t][static_cast<size_t>(kind)];
      const size_t count = set.pieces(t, kind).size();
      for (size_t p = 0; p < count; ++p) {
        if (folders[static_cast<size_t>(set.pieces(t, kind)[p].cut.drive)].empty()) {
          files.emplace_back();
          continue;
        }
        Result<DirectFile> file = DirectFile::Open(set.Path(t, kind, p));
        if (file && file->alignment() > manifest.page)
          return Fail(ErrorCode::kUnsupported, file->path(), ": expected a drive that takes reads of ", manifest.page,
                      " bytes, got one that wants ", file->alignment());
        files.push_back(file ? std::move(*file) : DirectFile());
      }
    }
  }
  return set;
}

std::string SetFiles::Path(size_t table, CopyKind kind, size_t piece) const {
  const ExpertPieceFile& file = pieces(table, kind)[piece];
  const std::string& folder = folders_[static_cast<size_t>(file.cut.drive)];
  return (folder.empty() ? manifest_.drives[static_cast<size_t>(file.cut.drive)].name : folder) + "/" + file.file;
}

bool SetFiles::AddParts(const Range& range, std::byte* buffer, int32_t first_drive, std::span<ReadPart> out,
                        size_t* count) const {
  const std::vector<ExpertPieceFile>& all = pieces(range.table, range.kind);
  uint64_t covered = range.begin;
  for (size_t p = 0; p < all.size(); ++p) {
    const ExpertPieceFile& piece = all[p];
    const uint64_t begin = std::max(range.begin, piece.cut.begin), end = std::min(range.end, piece.cut.end);
    if (begin >= end) continue;
    const DirectFile* from = file(range.table, range.kind, p);
    if (from == nullptr || *count == out.size()) return false;
    ReadPart& part = out[(*count)++];
    part = ReadPart();
    part.request = {from, piece.Offset(range.slot) + (begin - piece.cut.begin), end - begin, buffer + begin};
    part.drive = first_drive + piece.cut.drive;
    covered = end;
  }
  return covered == range.end;
}

ExpertKey KeyAt(const ExpertSetManifest& manifest, size_t position) {
  const auto experts = static_cast<size_t>(manifest.experts);
  return {static_cast<int32_t>(manifest.first_moe_layer + static_cast<int64_t>(position / experts)),
          static_cast<int32_t>(position % experts)};
}

std::string NameOf(ExpertKey key) { return Cat("layer ", key.layer, ", expert ", key.expert); }

Result<std::unique_ptr<IoScheduler>> MakeScheduler(const std::string& io, const std::string& model,
                                                   const std::vector<std::string>& folders) {
  DFIN_TRY(std::unique_ptr<IoEngine> engine, CreateIoEngine({.kind = io, .depth = 256}));
  IoSchedulerOptions options;
  options.drives = {{model, 0}};
  for (const std::string& folder : folders) options.drives.push_back({folder, 0});
  return std::make_unique<IoScheduler>(std::move(engine), std::move(options));
}

Status ReadNow(IoScheduler& io, std::span<const ReadPart> parts) {
  std::mutex mutex;
  std::condition_variable changed;
  Status result;
  bool answered = false, ended = false;
  io.Read(parts, IoPriority::kBackground, 0, [&](Status status) {
    const std::lock_guard lock(mutex);
    // After kDeadline a second call says that the memory is free again.
    ended = answered || status || status.error().code() != ErrorCode::kDeadline;
    if (!answered) result = std::move(status);
    answered = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended; });
  return result;
}

Status CheckSlotsThere(const std::vector<ExpertPieceFile>& pieces, uint64_t slots,
                       const std::vector<std::string>& folders) {
  if (slots == 0) return {};
  for (const ExpertPieceFile& piece : pieces) {
    const std::string path = folders[static_cast<size_t>(piece.cut.drive)] + "/" + piece.file;
    const uint64_t expected = piece.Offset(slots - 1) + piece.cut.bytes();
    std::error_code error;
    const uint64_t got = std::filesystem::file_size(path, error);
    if (!error && got >= expected) continue;
    return Fail(error ? ErrorCode::kIo : ErrorCode::kCorrupt, path, ": expected at least ", expected,
                " bytes, which an earlier call wrote, got ", error ? error.message() : Cat(got),
                ": is the drive mounted? Nothing was changed; give the same command again when the file is back");
  }
  return {};
}

}  // namespace deltafin
