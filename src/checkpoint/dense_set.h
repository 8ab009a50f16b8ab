// DenseSet: a folder of packed dense weights, opened and checked against a checkpoint.
//
// Holds no weights. Open() reads the manifest and the files' sizes; whether it was packed from this very model is
// CheckModel(); the bytes are checked where they are read (checkpoint/unit_layout.h). Immutable after Open;
// thread-safe. Errors: kNotFound (no such folder, no packed weights in it), kCorrupt (damaged, truncated, of another
// model, an unfinished pack), kUnsupported (a newer version), kIo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_manifest.h"
#include "io/direct_file.h"

namespace deltafin {

// Whether a tensor of the checkpoint is stored in 12 bits where that is smaller: the matrices that are multiplied with,
// and only that. The rest stays as it is.
bool MayBeBf12(std::string_view name, DType dtype, const Shape& shape);
// The dense tensors of a unit (layer, or the head), by full name, sorted; the embedding table belongs to none.
std::vector<std::string> DenseUnitNames(const Checkpoint& checkpoint, int32_t unit);
// kCorrupt unless the unit has exactly the checkpoint's tensors.
Status CheckDenseUnit(const DenseUnit& unit, const Checkpoint& checkpoint, const std::string& what);

class DenseSet {
 public:
  static Result<DenseSet> Open(const std::string& folder, const Checkpoint& checkpoint,
                               const ReadsBuffered& reads_buffered = {});

  const std::string& folder() const { return folder_; }
  const DenseManifest& manifest() const { return manifest_; }
  const DirectFile& file(int32_t unit) const { return files_[static_cast<size_t>(unit)]; }
  uint64_t alignment() const;  // the largest of the files'
  // kCorrupt when it was packed from another model.
  Status CheckModel(uint64_t model_id) const;

 private:
  std::string folder_;
  DenseManifest manifest_;
  std::vector<DirectFile> files_;  // [layers + 1]
};

}  // namespace deltafin
