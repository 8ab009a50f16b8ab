#include "simulate/model_shape.h"

#include <algorithm>
#include <numeric>

#include "spec/expert_record.h"
#include "spec/tensor_table.h"

namespace deltafin::simulate {
namespace {

constexpr double kBf16 = 2, kFloat = 4;

double Real(int64_t value) { return static_cast<double>(value); }

double LayerBytes(const ModelSpec& spec, int layer) {
  int64_t bytes = 0;
  for (const TensorSpec& t : LayerTensors(spec, layer)) bytes += t.shape.elements() * ByteSize(t.dtype);
  return Real(bytes);
}

double KdaStateBytes(const ModelSpec& spec) {
  const int64_t tails = 3 * (spec.conv_kernel - 1) * spec.kda_width();
  return kFloat * Real(spec.kda_width() * spec.kda_head_dim + tails);
}

// The residual blocks and the running values of a row; what the engine plans for a chunk is its own business.
double RowBytes(const ModelSpec& spec) {
  const int64_t blocks =
      1 +
      (Real(spec.attn_res_block_size) > 0 ? static_cast<int64_t>(spec.layers.size()) / spec.attn_res_block_size : 0);
  const int64_t widest = std::max({spec.kda_width(), spec.q_width(), spec.intermediate_size, spec.shared_width()});
  return kFloat * Real((blocks + 4) * spec.hidden_size + 3 * widest +
                       2 * spec.num_experts_per_token * spec.routed_expert_hidden_size);
}

}  // namespace

ModelShape ModelShape::From(const ModelSpec& spec) {
  ModelShape shape;
  shape.experts = spec.num_experts;
  shape.experts_per_token = spec.num_experts_per_token;
  const ExpertGeometry geometry(spec);
  shape.record_bytes = Real(geometry.record_bytes());
  for (const ExpertMatrix m : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3})
    shape.expert_weights += Real(geometry.rows(m) * geometry.cols(m));
  const double shared =
      kBf16 * Real(3 * spec.hidden_size * spec.shared_width() + 2 * spec.hidden_size * spec.routed_expert_hidden_size);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    LayerShape layer;
    layer.has_experts = spec.layers[l].feed_forward == FeedForwardKind::kMoe;
    const double all = LayerBytes(spec, static_cast<int>(l));
    layer.shared_bytes = layer.has_experts ? std::min(shared, all) : 0;
    layer.router_bytes = all - layer.shared_bytes;
    if (spec.layers[l].attention == AttentionKind::kKda) layer.state_bytes = 2 * KdaStateBytes(spec);
    shape.layers.push_back(layer);
  }
  shape.head_bytes = kBf16 * Real(spec.vocab_size * spec.hidden_size);
  shape.kept_state_bytes = 2 * KdaStateBytes(spec) * Real(spec.num_kda_layers);
  shape.bytes_per_context = kFloat * Real(spec.latent_width() * spec.num_mla_layers);
  shape.row_bytes = RowBytes(spec);
  return shape;
}

int64_t ModelShape::expert_layers() const {
  return std::count_if(layers.begin(), layers.end(), [](const LayerShape& l) { return l.has_experts; });
}

double ModelShape::dense_bytes() const {
  double sum = head_bytes;
  for (const LayerShape& layer : layers) sum += layer.bytes();
  return sum;
}

std::vector<double> ModelShape::unit_bytes() const {
  std::vector<double> bytes;
  for (const LayerShape& layer : layers) bytes.push_back(layer.bytes());
  bytes.push_back(head_bytes);
  return bytes;
}

std::vector<size_t> ModelShape::units_by_size() const {
  const std::vector<double> bytes = unit_bytes();
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  return order;
}

double ModelShape::all_expert_bytes() const { return Real(expert_layers() * experts) * record_bytes; }

}  // namespace deltafin::simulate
