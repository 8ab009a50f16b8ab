// ExpertSet: routed experts packed over several drives (`deltafin pack`), opened and checked.
//
// A set has one folder a drive. Open() finds the newest generation that all given folders agree on, checks that every
// record can be reached, and opens the files. A folder that is missing or stale is an error, unless every record has a
// second copy on the others: then it is a warning and the drive counts as missing. Holds no weights, writes nothing.
// Immutable after Open; thread-safe. Errors: kNotFound (folder, manifest), kCorrupt (torn manifest or index, file too
// short), kInvalidArgument (folders of different sets), kUnsupported.
#pragma once

#include <memory>
#include <string>
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

class ExpertSet {
 public:
  // `folders` in any order. The set must be complete and of `spec`'s shape.
  static Result<ExpertSet> Open(const std::vector<std::string>& folders, const ModelSpec& spec);

  ExpertSet(ExpertSet&&) noexcept;
  ExpertSet& operator=(ExpertSet&&) noexcept;
  ~ExpertSet();

  const ExpertSetManifest& manifest() const;
  const ExpertSetIndex& index() const;
  // By drive of the manifest; "" for a missing one.
  const std::vector<std::string>& folders() const;
  // Whole sentences: missing drives, files that cannot be read directly, folders on one device.
  const std::vector<std::string>& warnings() const;

  const ExpertSetEntry& Entry(ExpertKey key) const;
  const ExpertTable& Table(const ExpertSetEntry& entry) const;
  // The reads that bring the record of `key` to `slot` (aligned to the page), at most IoScheduler::kMaxParts. Drives are
  // numbered from `first_drive`. Parts of a missing drive are replaced by their copies. Returns how many.
  size_t Parts(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<ReadPart> out) const;
  // File and offset of byte `at` of the packed record, for messages: "DRIVE/experts-g1-t3-0.bin, byte 123".
  std::string Where(ExpertKey key, uint64_t at) const;

 private:
  struct State;
  explicit ExpertSet(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The small file that `pack` leaves, so that --experts may be omitted: which folders hold the experts of a model.
// In the model folder as "deltafin-experts.json", or in the state folder under a name made from the model folder.
struct ExpertSetPointer {
  uint64_t set_id = 0;
  std::vector<std::string> folders;  // absolute
};
// Empty vector when there is none. kCorrupt when one is there and unreadable.
Result<std::vector<std::string>> FindExpertFolders(const std::string& model_folder, const std::string& state_folder);
// Into the model folder if that can be written, else into the state folder; the path it wrote.
Result<std::string> WriteExpertPointer(const std::string& model_folder, const std::string& state_folder,
                                       const ExpertSetPointer& pointer);

}  // namespace deltafin
