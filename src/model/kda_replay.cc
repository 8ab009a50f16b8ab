#include "model/kda_replay.h"

#include <algorithm>
#include <cstring>

namespace deltafin {
namespace {

constexpr int64_t kWideRows = 6;  // q_proj, k_proj, v_proj, k, v, decay

void CopyRows(const ConstRows& from, const Rows& to) {
  DFIN_DCHECK(from.width == to.width && from.rows <= to.rows, "rows of another shape");
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(to.row(r), from.row(r), static_cast<size_t>(from.width) * sizeof(float));
}

// The tail of a convolution after `rows` more inputs: the last rows of what came before and of them, in order.
void AdvanceTail(const ConstRows& inputs, int64_t rows, const SequenceState::KdaLayer::Tail& tail) {
  const size_t bytes = static_cast<size_t>(tail.after.width) * sizeof(float);
  for (int64_t i = 0; i < tail.after.rows; ++i) {
    const int64_t from = i + rows;  // counted from the old tail's first row
    std::memcpy(tail.after.row(i),
                from < tail.before.rows ? tail.before.row(from) : inputs.row(from - tail.before.rows), bytes);
  }
}

}  // namespace

int64_t KdaReplay::FloatsPerLayer(const ModelSpec& spec, int64_t max_rows) {
  return (max_rows * kWideRows + 1) * spec.kda_width() + (max_rows + 1) * spec.kda_heads;
}

uint64_t KdaReplay::Bytes(const ModelSpec& spec, int64_t max_rows) {
  const int64_t floats = spec.num_kda_layers * FloatsPerLayer(spec, max_rows) + max_rows * spec.kda_width();
  return static_cast<uint64_t>(floats) * sizeof(float);
}

Result<KdaReplay> KdaReplay::Create(const ModelSpec& spec, int64_t max_rows) {
  DFIN_CHECK(max_rows >= 1, "a step has at least one row");
  KdaReplay replay;
  replay.max_rows_ = max_rows;
  replay.heads_ = spec.kda_heads;
  replay.head_dim_ = spec.kda_head_dim;
  replay.layers_ = spec.num_kda_layers;
  replay.lower_bound_ = spec.gate_lower_bound;
  replay.layer_floats_ = FloatsPerLayer(spec, max_rows);
  DFIN_TRY(replay.memory_, AlignedBuffer::Create(Bytes(spec, max_rows)));
  return replay;
}

KdaReplay::Layer KdaReplay::At(int32_t kda_index) const {
  DFIN_DCHECK(kda_index >= 0 && kda_index < layers_, "not a KDA layer");
  float* at = reinterpret_cast<float*>(memory_.data()) + kda_index * layer_floats_;
  const auto take = [&at](int64_t rows, int64_t width) {
    const Rows taken(at, rows, width);
    at += rows * width;
    return taken;
  };
  const int64_t width = heads_ * head_dim_;
  Layer layer;
  for (Rows* rows : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.k, &layer.v, &layer.decay})
    *rows = take(max_rows_, width);
  layer.dt_bias = take(1, width);
  layer.beta = take(max_rows_, heads_);
  layer.a_log = take(1, heads_);
  return layer;
}

void KdaReplay::Keep(int32_t kda_index, int64_t first_head, const LayerInputs& inputs) {
  DFIN_CHECK(inputs.k.rows <= max_rows_, "step has more rows than are kept");
  const Layer layer = At(kda_index);
  const int64_t first = first_head * head_dim_;
  const auto keep = [](const ConstRows& from, const Rows& to, int64_t column) {
    CopyRows(from, to.Columns(column, from.width));
  };
  keep(inputs.q_proj, layer.q_proj, first);
  keep(inputs.k_proj, layer.k_proj, first);
  keep(inputs.v_proj, layer.v_proj, first);
  keep(inputs.k, layer.k, first);
  keep(inputs.v, layer.v, first);
  keep(inputs.decay, layer.decay, first);
  keep(inputs.beta, layer.beta, first_head);
  keep({inputs.a_log.f32(), 1, inputs.a_log.shape.elements()}, layer.a_log, first_head);
  keep({inputs.dt_bias.f32(), 1, inputs.dt_bias.shape.elements()}, layer.dt_bias, first);
}

void KdaReplay::Replay(Backend& backend, SequenceState& state, int64_t rows) {
  DFIN_CHECK(rows >= 1 && rows <= max_rows_, "more rows than were kept");
  const int64_t width = heads_ * head_dim_;
  const Rows unwanted(reinterpret_cast<float*>(memory_.data()) + layers_ * layer_floats_, rows, width);
  for (int32_t l = 0; l < layers_; ++l) {
    const Layer layer = At(l);
    const SequenceState::KdaLayer next = state.NextKda(l);
    AdvanceTail(layer.q_proj, rows, next.q_tail);
    AdvanceTail(layer.k_proj, rows, next.k_tail);
    AdvanceTail(layer.v_proj, rows, next.v_tail);
    const auto first = [rows](const Rows& kept) { return kept.Slice(0, rows); };
    backend.Kda({.q = first(layer.k),  // q reads the state and does not change it: any number does
                 .k = first(layer.k),
                 .v = first(layer.v),
                 .raw_decay = first(layer.decay),
                 .raw_beta = first(layer.beta),
                 .a_log = {reinterpret_cast<const std::byte*>(layer.a_log.data), DType::kF32, Shape{heads_}},
                 .dt_bias = {reinterpret_cast<const std::byte*>(layer.dt_bias.data), DType::kF32, Shape{width}},
                 .lower_bound = lower_bound_,
                 .heads = heads_,
                 .head_dim = head_dim_,
                 .before = next.s_before,
                 .after = next.s_after,
                 .out = unwanted});
  }
  state.Commit(rows);
}

}  // namespace deltafin
