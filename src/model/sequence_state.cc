#include "model/sequence_state.h"

#include <cstring>

namespace deltafin {
namespace {

int64_t KdaFloatsPerLayer(const ModelSpec& spec) {
  return spec.kda_heads * spec.kda_head_dim * spec.kda_head_dim + 3 * (spec.conv_kernel - 1) * spec.kda_width();
}

}  // namespace

uint64_t SequenceState::KdaBytes(const ModelSpec& spec) {
  return static_cast<uint64_t>(2 * spec.num_kda_layers * KdaFloatsPerLayer(spec)) * sizeof(float);
}

uint64_t SequenceState::MlaBytes(const ModelSpec& spec, int64_t capacity) {
  return static_cast<uint64_t>(spec.num_mla_layers * capacity * spec.latent_width()) * sizeof(float);
}

Result<SequenceState> SequenceState::Create(const ModelSpec& spec, int64_t capacity) {
  SequenceState state;
  state.heads_ = spec.kda_heads;
  state.head_dim_ = spec.kda_head_dim;
  state.tail_rows_ = spec.conv_kernel - 1;
  state.latent_width_ = spec.latent_width();
  state.kda_layers_ = spec.num_kda_layers;
  state.mla_layers_ = spec.num_mla_layers;
  state.kda_floats_ = KdaFloatsPerLayer(spec);
  state.capacity_ = capacity;
  DFIN_TRY(state.kda_, AlignedBuffer::Create(KdaBytes(spec)));
  // Mostly empty for a long time: small pages, so that it costs what is used of it.
  DFIN_TRY(state.mla_, AlignedBuffer::Create(MlaBytes(spec, capacity), /*huge_pages=*/false));
  return state;
}

float* SequenceState::KdaBase(int copy, int32_t kda_index) const {
  DFIN_DCHECK(kda_index >= 0 && kda_index < kda_layers_, "not a KDA layer");
  return reinterpret_cast<float*>(kda_.data()) + (copy * kda_layers_ + kda_index) * kda_floats_;
}

SequenceState::KdaLayer SequenceState::NextKda(int32_t kda_index) {
  float* next = KdaBase(1 - current_, kda_index);
  const float* current = KdaBase(current_, kda_index);
  const int64_t s_floats = heads_ * head_dim_ * head_dim_;
  std::memcpy(next + s_floats, current + s_floats, static_cast<size_t>(kda_floats_ - s_floats) * sizeof(float));
  const int64_t width = heads_ * head_dim_;
  const auto tail = [&](int64_t which) {
    return Rows(next + s_floats + which * tail_rows_ * width, tail_rows_, width);
  };
  return {current, next, tail(0), tail(1), tail(2)};
}

Rows SequenceState::MlaRows(int32_t mla_index, int64_t first, int64_t count) {
  DFIN_CHECK(mla_index >= 0 && mla_index < mla_layers_ && first + count <= capacity_, "outside the MLA cache");
  float* layer = reinterpret_cast<float*>(mla_.data()) + mla_index * capacity_ * latent_width_;
  return {layer + first * latent_width_, count, latent_width_};
}

void SequenceState::Commit(int64_t rows) {
  DFIN_CHECK(length_ + rows <= capacity_, "sequence is longer than its capacity");
  length_ += rows;
  current_ = 1 - current_;
}

void SequenceState::Reset() {
  length_ = 0;
  for (int32_t l = 0; l < kda_layers_; ++l)
    std::memset(KdaBase(current_, l), 0, static_cast<size_t>(kda_floats_) * sizeof(float));
}

const float* SequenceState::CurrentS(int32_t kda_index) const { return KdaBase(current_, kda_index); }

ConstRows SequenceState::CurrentMla(int32_t mla_index) const {
  const float* layer = reinterpret_cast<const float*>(mla_.data()) + mla_index * capacity_ * latent_width_;
  return {layer, length_, latent_width_};
}

}  // namespace deltafin
