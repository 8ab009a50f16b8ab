#include "bench/token_work.h"

#include "spec/tensor_table.h"

namespace deltafin {

TokenWork WorkOfToken(const ModelSpec& spec, uint64_t packed_dense_bytes) {
  TokenWork work;
  const auto bytes = [](const TensorSpec& tensor) {
    return static_cast<double>(tensor.shape.elements() * ByteSize(tensor.dtype));
  };
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    for (const TensorSpec& tensor : LayerTensors(spec, layer)) {
      work.dense_bytes += bytes(tensor);
      if (tensor.shape.rank() == 2) work.dense_macs += static_cast<double>(tensor.shape.elements());
    }
  }
  for (const TensorSpec& tensor : GlobalTensors(spec)) {
    const bool is_embedding = tensor.name == kEmbedTokens;
    work.dense_bytes += is_embedding ? bytes(tensor) / static_cast<double>(spec.vocab_size) : bytes(tensor);
    if (!is_embedding && tensor.shape.rank() == 2) work.head_macs += static_cast<double>(tensor.shape.elements());
  }
  if (packed_dense_bytes > 0)
    work.dense_bytes = static_cast<double>(packed_dense_bytes + 2 * static_cast<uint64_t>(spec.hidden_size));
  work.expert_macs = static_cast<double>(spec.num_moe_layers * spec.num_experts_per_token * 3 *
                                         spec.routed_expert_hidden_size * spec.moe_intermediate_size);
  return work;
}

}  // namespace deltafin
