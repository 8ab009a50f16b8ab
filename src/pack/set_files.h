// SetFiles: an expert set as it is found: manifests of folders, the index with all checksums, the files that are there.
//
// Unlike ExpertSet (for running), it opens sets with records, files or whole folders missing: what packs, rebalances,
// verifies and repairs needs that. Holds no weights, writes nothing. Immutable after opening; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/expert_set_folders.h"
#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"
#include "io/direct_file.h"
#include "io/io_scheduler.h"

namespace deltafin {

inline constexpr std::string_view kManifestPrefix = "deltafin-experts-g";
inline constexpr std::string_view kPiecePrefix = "experts-g";
std::string IndexFileName(uint64_t generation);

// The newest generation of which the folders hold every drive, else the newest of any (some folders are "" then).
SetCandidate NewestOf(const FoundSets& found);
// The same of what FindSets finds; its errors.
Result<SetCandidate> FindNewest(const std::vector<std::string>& folders);
bool IsComplete(const SetCandidate& candidate);
// "drive 1 ('b') of the expert set ..., generation 2": for messages.
std::string NameOfDrive(const ExpertSetManifest& manifest, size_t drive);
// Why none of the `given` folders is a drive of `chosen`: damaged, stale, not there. Sentences without end, joined.
std::string WhyMissing(const FoundSets& found, const SetCandidate& chosen, const std::vector<std::string>& given);

// From the first folder whose copy is the one that the manifest names. With chunks.
Result<ExpertSetIndex> LoadIndex(const ExpertSetManifest& manifest, const std::vector<std::string>& folders);

enum class CopyKind : uint8_t { kPrimary, kReplica };

// That the files of `pieces` hold `slots` slots, as a journal or manifest says they do: a drive that is not mounted
// shows an empty folder. `folders` by drive. Names the file: kIo when it is not there, kCorrupt when it is too short.
Status CheckSlotsThere(const std::vector<ExpertPieceFile>& pieces, uint64_t slots,
                       const std::vector<std::string>& folders);

class SetFiles {
 public:
  // Files that cannot be opened are left out, and those of folders that are "". kUnsupported: a drive wants reads
  // aligned to more than the set's page.
  static Result<SetFiles> Open(const ExpertSetManifest& manifest, const std::vector<std::string>& folders);

  const ExpertSetManifest& manifest() const { return manifest_; }
  const std::vector<std::string>& folders() const { return folders_; }
  const std::vector<ExpertPieceFile>& pieces(size_t table, CopyKind kind) const {
    const ExpertTable& t = manifest_.tables[table];
    return kind == CopyKind::kPrimary ? t.pieces : t.replica_pieces;
  }
  // Null when it could not be opened.
  const DirectFile* file(size_t table, CopyKind kind, size_t piece) const {
    const DirectFile& f = files_[table][static_cast<size_t>(kind)][piece];
    return f.fd() < 0 ? nullptr : &f;
  }
  std::string Path(size_t table, CopyKind kind, size_t piece) const;

  // Appends the reads of bytes [begin, end) of a record to `out`; they land at buffer + begin. False when a file that
  // is needed is missing or `out` is full. Drives are numbered from first_drive.
  struct Range {
    size_t table = 0;
    CopyKind kind = CopyKind::kPrimary;
    uint32_t slot = 0;
    uint64_t begin = 0, end = 0;
  };
  bool AddParts(const Range& range, std::byte* buffer, int32_t first_drive, std::span<ReadPart> out,
                size_t* count) const;

 private:
  ExpertSetManifest manifest_;
  std::vector<std::string> folders_;
  std::vector<std::array<std::vector<DirectFile>, 2>> files_;  // [table][kind][piece]
};

// Place of an expert in ExpertSetIndex::entries, and back.
ExpertKey KeyAt(const ExpertSetManifest& manifest, size_t position);
std::string NameOf(ExpertKey key);  // "layer 3, expert 17"

// A scheduler with a queue for the model's drive (0) and one for each of `folders` (1...).
Result<std::unique_ptr<IoScheduler>> MakeScheduler(const std::string& io, const std::string& model,
                                                   const std::vector<std::string>& folders);
// Reads and waits.
Status ReadNow(IoScheduler& io, std::span<const ReadPart> parts);

}  // namespace deltafin
