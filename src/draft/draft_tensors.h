// DraftTensors: the weights of a drafter in memory, from one safetensors file that must hold exactly what its config
// says.
//
// Every expected tensor and no other, BF16, without gaps, in a file of exactly the announced size. Opening reads the
// header only, Load() the rest. Thread-compatible. Errors: kNotFound, kIo, kCorrupt, kUnsupported, kOutOfMemory.
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
  // `expected`: sorted by name. `kind` names the drafter in errors.
  static Result<DraftTensors> Open(const std::string& path, const std::vector<DraftTensor>& expected,
                                   std::string_view kind);

  uint64_t bytes() const { return bytes_; }  // in memory
  Status Load(CancelToken cancel);
  // Of a tensor that is expected and read; loaded before.
  TensorView Get(std::string_view name) const;

 private:
  struct Piece {
    std::string name;
    Shape shape;
    uint64_t file_offset = 0, bytes = 0, at = 0;
  };
  std::string path_;
  std::vector<Piece> pieces_;  // sorted by name
  uint64_t bytes_ = 0;
  AlignedBuffer memory_;
};

// A config.json: at most 1 MiB.
Result<std::string> ReadDraftConfig(const std::string& path);

}  // namespace deltafin
