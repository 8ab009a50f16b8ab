// ExpertSet: routed experts packed over several drives (`deltafin pack`), opened and checked.
//
// A set has one folder a drive. Open() takes the newest generation that is there on all its drives, checks that every
// record can be reached, and opens the files. A folder that is missing, stale or damaged is an error, unless every
// record has a second copy on the others: then it is a warning and the drive counts as missing. Holds no weights,
// writes nothing. Immutable after Open; thread-safe. Errors: kNotFound (manifest, records), kCorrupt (torn manifest or
// index, file too short, a set of another model), kInvalidArgument (folders of different sets), kIo (a folder that is
// not there), kUnsupported.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"
#include "io/direct_file.h"
#include "io/drive.h"
#include "io/read_request.h"
#include "spec/model_spec.h"

namespace deltafin {

// Bytes [begin, end) of a packed record.
struct RecordRange {
  uint64_t begin = 0, end = 0;
};

class ExpertSet {
 public:
  // Which records must be there: the engine needs all; pack and verify also open what an incomplete download gave.
  enum class Need : uint8_t { kAllRecords, kAnyRecords };
  // `folders` in any order. The set must be of `spec`'s shape.
  static Result<ExpertSet> Open(const std::vector<std::string>& folders, const ModelSpec& spec,
                                Need need = Need::kAllRecords, const ReadsBuffered& reads_buffered = {});

  ExpertSet(ExpertSet&&) noexcept;
  ExpertSet& operator=(ExpertSet&&) noexcept;
  ~ExpertSet();

  const ExpertSetManifest& manifest() const;
  const ExpertSetIndex& index() const;
  // By drive of the manifest; "" for a missing one.
  const std::vector<std::string>& folders() const;
  // Whole sentences: missing drives, files that cannot be read directly, folders on one device.
  const std::vector<std::string>& warnings() const;

  // By drive of the manifest, for the I/O scheduler: the folder as it was given (the name in the manifest for a missing
  // one) and the rate of the manifest.
  std::vector<DriveInfo> drives() const;

  const ExpertSetEntry& Entry(ExpertKey key) const;
  const ExpertTable& Table(const ExpertSetEntry& entry) const;
  // Whether every byte of the record can be read from two drives that are there.
  bool HasCopy(ExpertKey key) const;
  // The reads that bring the record of `key` to `slot` (aligned to the page), at most IoScheduler::kMaxParts. Drives
  // are numbered from `first_drive`. Parts of a missing drive are replaced by their copies. Returns how many.
  size_t Parts(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<ReadPart> out) const;
  // The same, but parts with a byte in one of `bad` are read from their copies only, where they have one. Returns 0
  // when none of those has.
  size_t PartsAvoiding(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<const RecordRange> bad,
                       std::span<ReadPart> out) const;
  // Reads of `ranges` alone (whole pages), into a slot that holds the record otherwise. With `copies`: from the copies,
  // where they have one; 0 when none has. Also 0 when there is no room in `out`.
  size_t PartsOfRanges(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<const RecordRange> ranges,
                       bool copies, std::span<ReadPart> out) const;
  // Checksums of the record's chunks.
  std::span<const uint64_t> ChunkHashes(ExpertKey key) const;
  // File and offset of byte `at` of the packed record, for messages: "DRIVE/experts-g1-t3-0.bin, byte 123".
  std::string Where(ExpertKey key, uint64_t at) const;
  // "DRIVE/experts-g1-t3-0.bin, bytes 0 to 4095", one for each file that has bytes of the range.
  std::string Where(ExpertKey key, RecordRange range) const;

 private:
  struct State;
  explicit ExpertSet(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The small file that `pack` leaves, so that --experts may be omitted: which folders hold the experts of a model.
// In the model folder as "deltafin-experts.json", or in the state folder under a name made from the model folder.
inline constexpr const char* kExpertPointerName = "deltafin-experts.json";
struct ExpertSetPointer {
  uint64_t set_id = 0;
  std::vector<std::string> folders;  // absolute
};
// Pure. kCorrupt, kUnsupported.
Result<ExpertSetPointer> ParseExpertPointer(std::string_view text, const std::string& what);
// Nothing when there is none. kCorrupt when one is there and unreadable.
Result<std::optional<ExpertSetPointer>> FindExpertPointer(const std::string& model_folder,
                                                          const std::string& state_folder);
// Its folders; empty when there is none.
Result<std::vector<std::string>> FindExpertFolders(const std::string& model_folder, const std::string& state_folder);
// Into the model folder if that can be written, else into the state folder; the path it wrote.
Result<std::string> WriteExpertPointer(const std::string& model_folder, const std::string& state_folder,
                                       const ExpertSetPointer& pointer);

}  // namespace deltafin
