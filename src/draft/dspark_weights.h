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

#include "base/cancel.h"
#include "base/result.h"
#include "draft/draft_tensors.h"
#include "draft/dspark_config.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

class DsparkWeights {
 public:
  static Result<DsparkWeights> Open(const std::string& folder, const ModelSpec& target);

  const DsparkConfig& config() const { return config_; }
  uint64_t bytes() const { return tensors_.bytes(); }  // in memory

  Status Load(CancelToken cancel) { return tensors_.Load(cancel); }
  // Of a tensor that DsparkTensors() names; loaded before.
  TensorView Get(std::string_view name) const { return tensors_.Get(name); }
  TensorView Layer(int64_t layer, std::string_view name) const;

 private:
  DsparkConfig config_;
  DraftTensors tensors_;
};

}  // namespace deltafin
