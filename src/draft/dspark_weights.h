// DsparkWeights: the weights of a DSpark drafter in memory, from a folder with config.json and model.safetensors.
//
// Admitted only as the released layout: exactly the tensors that follow from the config, BF16, without gaps, in regular
// files of exactly the announced size. The copy of the model's embedding in the file is not read. Whoever gets an error
// goes on without the drafter. Opening reads headers only, Load() the rest. Thread-compatible. Errors: kNotFound, kIo,
// kCorrupt, kUnsupported, kOutOfMemory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cancel.h"
#include "base/result.h"
#include "draft/dspark_config.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

class DsparkWeights {
 public:
  static Result<DsparkWeights> Open(const std::string& folder, const ModelSpec& target);

  const DsparkConfig& config() const { return config_; }
  uint64_t bytes() const { return bytes_; }  // in memory

  Status Load(CancelToken cancel);
  // Of a tensor that DsparkTensors() names; loaded before.
  TensorView Get(std::string_view name) const;
  TensorView Layer(int64_t layer, std::string_view name) const;

 private:
  struct Piece {
    std::string name;
    Shape shape;
    uint64_t file_offset = 0, bytes = 0, at = 0;
  };
  std::string path_;
  DsparkConfig config_;
  std::vector<Piece> pieces_;  // sorted by name
  uint64_t bytes_ = 0;
  AlignedBuffer memory_;
};

}  // namespace deltafin
