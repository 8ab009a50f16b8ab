// Fuzzes the config.json of a Qwen3 model that drafts: whatever is accepted has tensors whose sizes can be multiplied.
#include <cstdlib>

#include "draft/qwen_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltafin;
  const Result<QwenConfig> config = QwenConfig::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config) return 0;
  uint64_t bytes = 0;
  for (const DraftTensor& tensor : QwenTensors(*config)) {
    if (tensor.shape.elements() <= 0) std::abort();
    bytes += static_cast<uint64_t>(tensor.shape.elements()) * 2;
  }
  if (bytes > uint64_t{1} << 62) std::abort();
  if (config->group() * config->kv_heads != config->heads || config->head_dim % 2 != 0) std::abort();
  for (const TokenId id : config->end_tokens)
    if (id < 0 || id >= config->vocab) std::abort();
  return 0;
}
