// DraftTensors: the weights of a drafter in memory, from safetensors files that must hold exactly what its config says.
//
// Every expected tensor once and no other, BF16, without gaps, in files of exactly the announced sizes. Opening reads
// the headers only, Load() the rest. Thread-compatible. Errors: kNotFound, kIo, kCorrupt, kUnsupported, kOutOfMemory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/result.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace deltafin {

struct DraftTensor {
  std::string name;
  Shape shape;           // BF16
  bool read = true;      // false: a copy of what is there already
  bool required = true;  // false: some files have it
};

class DraftTensors {
 public:
  // `paths`: as of FindDraftFiles. `expected`: sorted by name. `kind` names the drafter in errors.
  static Result<DraftTensors> Open(std::vector<std::string> paths, const std::vector<DraftTensor>& expected,
                                   std::string_view kind);

  uint64_t bytes() const { return bytes_; }  // in memory
  Status Load(CancelToken cancel);
  // Of a tensor that is expected and read; loaded before.
  TensorView Get(std::string_view name) const;

 private:
  struct Piece {
    std::string name;
    Shape shape;
    size_t file = 0;
    uint64_t file_offset = 0, bytes = 0, at = 0;
  };
  std::vector<std::string> paths_;
  std::vector<Piece> pieces_;  // sorted by name
  uint64_t bytes_ = 0;
  AlignedBuffer memory_;
};

// The folder's model.safetensors, or all of model-00001-of-0000N.safetensors and so on. kNotFound names what is
// missing.
Result<std::vector<std::string>> FindDraftFiles(const std::string& folder);
// A config.json: at most 1 MiB.
Result<std::string> ReadDraftConfig(const std::string& path);

}  // namespace deltafin
