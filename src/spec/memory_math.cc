#include "spec/memory_math.h"

#include "spec/tensor_table.h"

namespace deltafin {
namespace {

uint64_t Sum(const std::vector<TensorSpec>& tensors) {
  int64_t bytes = 0;
  for (const TensorSpec& t : tensors) bytes += t.shape.elements() * ByteSize(t.dtype);
  return static_cast<uint64_t>(bytes);
}

}  // namespace

uint64_t DenseWeightBytes(const ModelSpec& spec) {
  uint64_t bytes = Sum(GlobalTensors(spec));
  for (int l = 0; l < static_cast<int>(spec.layers.size()); ++l) bytes += Sum(LayerTensors(spec, l));
  return bytes;
}

uint64_t ExpertWeightBytes(const ModelSpec& spec) {
  return static_cast<uint64_t>(spec.num_moe_layers * spec.num_experts * ExpertGeometry(spec).record_bytes());
}

}  // namespace deltafin
