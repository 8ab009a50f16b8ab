// Fuzzes the config.json of a DSpark drafter: whatever is accepted has tensors whose sizes can be multiplied.
#include <cstdlib>

#include "draft/dspark_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltafin;
  ModelSpec target;
  target.hidden_size = 16;
  target.vocab_size = 32;
  target.layers.resize(4);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<DsparkConfig> config = DsparkConfig::Parse(text, "fuzz", target);
  if (!config) return 0;
  uint64_t bytes = 0;
  for (const DraftTensor& tensor : DsparkTensors(*config)) {
    if (tensor.shape.elements() <= 0) std::abort();
    bytes += static_cast<uint64_t>(tensor.shape.elements()) * 2;
  }
  if (bytes > uint64_t{1} << 62) std::abort();
  for (const int32_t tap : config->taps)
    if (tap < 0 || tap >= 4) std::abort();
  if (config->mask_token < 0 || config->mask_token >= 32) std::abort();
  if (static_cast<int64_t>(YarnFrequencies(config->yarn).size()) * 2 != config->rope) std::abort();
  return 0;
}
