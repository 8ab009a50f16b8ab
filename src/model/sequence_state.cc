#include "model/sequence_state.h"

#include <cstring>
#include <utility>

namespace deltafin {
namespace {

int64_t KdaFloatsPerLayer(const ModelSpec& spec) {
  return spec.kda_heads * spec.kda_head_dim * spec.kda_head_dim + 3 * (spec.conv_kernel - 1) * spec.kda_width();
}

}  // namespace

uint64_t SequenceState::KdaBytes(const ModelSpec& spec) {
  return static_cast<uint64_t>(2 * spec.num_kda_layers * KdaFloatsPerLayer(spec)) * sizeof(float);
}

uint64_t SequenceState::MlaBytes(const ModelSpec& spec, int64_t capacity, DType latents) {
  return static_cast<uint64_t>(spec.num_mla_layers * capacity * spec.latent_width() * ByteSize(latents));
}

uint64_t SequenceState::MlaSlackBytes(const ModelSpec& spec, DType latents) {
  return MlaPagePool::SlackBytes(MlaCache::PageBytes(spec.num_mla_layers, spec.latent_width(), latents));
}

std::shared_ptr<MlaPagePool> SequenceState::LatentPool(const ModelSpec& spec, DType latents) {
  return MlaPagePool::Create(MlaCache::PageBytes(spec.num_mla_layers, spec.latent_width(), latents));
}

Result<SequenceState> SequenceState::Create(const ModelSpec& spec, int64_t capacity, DType latents,
                                            std::shared_ptr<MlaPagePool> pool) {
  SequenceState state;
  state.heads_ = spec.kda_heads;
  state.head_dim_ = spec.kda_head_dim;
  state.tail_rows_ = spec.conv_kernel - 1;
  state.kda_layers_ = spec.num_kda_layers;
  state.kda_floats_ = KdaFloatsPerLayer(spec);
  state.capacity_ = capacity;
  DFIN_TRY(state.kda_, AlignedBuffer::Create(KdaBytes(spec)));
  state.mla_ = MlaCache(spec.num_mla_layers, spec.latent_width(), capacity, latents, std::move(pool));
  return state;
}

float* SequenceState::KdaBase(int copy, int32_t kda_index) const {
  DFIN_DCHECK(kda_index >= 0 && kda_index < kda_layers_, "not a KDA layer");
  return reinterpret_cast<float*>(kda_.data()) + (copy * kda_layers_ + kda_index) * kda_floats_;
}

SequenceState::KdaLayer SequenceState::NextKda(int32_t kda_index) {
  float* next = KdaBase(1 - current_, kda_index);
  const float* current = KdaBase(current_, kda_index);
  const int64_t width = heads_ * head_dim_;
  const auto tail = [&](int64_t which) {
    const int64_t at = heads_ * head_dim_ * head_dim_ + which * tail_rows_ * width;
    return KdaLayer::Tail{{current + at, tail_rows_, width}, {next + at, tail_rows_, width}};
  };
  return {current, next, tail(0), tail(1), tail(2)};
}

Status SequenceState::Prepare(int64_t rows) {
  DFIN_CHECK(length_ + rows <= capacity_, "sequence is longer than its capacity");
  return mla_.Prepare(length_, rows);
}

PackedRows SequenceState::NextMla(int32_t mla_index, int64_t first, int64_t count) {
  return mla_.Writable(mla_index, length_ + first, count);
}

void SequenceState::Commit(int64_t rows) {
  length_ += rows;
  current_ = 1 - current_;
}

void SequenceState::Reset() {
  length_ = 0;
  mla_.Truncate(0);
  for (int32_t l = 0; l < kda_layers_; ++l)
    std::memset(KdaBase(current_, l), 0, static_cast<size_t>(kda_floats_) * sizeof(float));
}

MutBytes SequenceState::HalfBytes(int copy) const {
  return kda_.span().subspan(copy * kda_.size() / 2, kda_.size() / 2);
}

Result<SequenceState> SequenceState::Fork() const {
  SequenceState fork;
  fork.heads_ = heads_;
  fork.head_dim_ = head_dim_;
  fork.tail_rows_ = tail_rows_;
  fork.kda_layers_ = kda_layers_;
  fork.kda_floats_ = kda_floats_;
  fork.length_ = length_;
  fork.capacity_ = capacity_;
  DFIN_TRY(fork.kda_, AlignedBuffer::Create(kda_.size()));
  const Bytes current = CurrentKdaBytes();
  std::memcpy(fork.HalfBytes(fork.current_).data(), current.data(), current.size());
  fork.mla_ = mla_.Prefix(length_, capacity_);
  return fork;
}

Result<StateCheckpoint> SequenceState::Checkpoint() const {
  StateCheckpoint kept;
  kept.position_ = length_;
  const Bytes current = CurrentKdaBytes();
  DFIN_TRY(kept.kda_, AlignedBuffer::Create(current.size()));
  std::memcpy(kept.kda_.data(), current.data(), current.size());
  kept.mla_ = mla_.Prefix(length_, length_);
  return kept;
}

void SequenceState::Restore(const StateCheckpoint& kept) {
  DFIN_CHECK(kept.kda_.size() == kda_.size() / 2 && kept.position_ <= capacity_, "a checkpoint of another model");
  std::memcpy(HalfBytes(current_).data(), kept.kda_.data(), kept.kda_.size());
  mla_ = kept.mla_.Prefix(kept.position_, capacity_);
  length_ = kept.position_;
}

const float* SequenceState::CurrentS(int32_t kda_index) const { return KdaBase(current_, kda_index); }

}  // namespace deltafin
