// SequenceState: everything one token sequence carries from step to step: KDA states, convolution tails, MLA latents.
//
// Per KDA layer: S [heads, d (key), d (value)] f32 and three tails [taps - 1, heads * d] f32 (q, k, v inputs of the
// short convolution). Per MLA layer: latents in pages (model/mla_cache.h), one row a token. At K3's sizes 465 MB of KDA
// state and 55.3 KB a token.
//
// A step is all or nothing. The layers of a step write the next KDA state beside the current one and latents behind
// length(); Commit() makes them current. A step that fails or is cancelled in the middle leaves the sequence exactly as
// it was: nothing has to be undone or computed again. KDA memory is taken in Create(), pages of latents as they begin,
// so a large capacity costs nothing until it is used. Thread rule: engine thread only. Errors: kOutOfMemory.
#pragma once

#include <cstdint>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "model/mla_cache.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

// A prefix of a sequence, kept: a copy of its KDA state, and its latents, whose pages are shared. Never changes.
class StateCheckpoint {
 public:
  int64_t position() const { return position_; }  // tokens it describes
  uint64_t kda_bytes() const { return kda_.size(); }
  Bytes kda() const { return kda_.span(); }
  uint64_t latent_bytes() const { return mla_.pages().size() * mla_.page_bytes(); }  // shared ones too
  const MlaCache& mla() const { return mla_; }

 private:
  friend class SequenceState;
  int64_t position_ = 0;
  AlignedBuffer kda_;  // [kda_layers, kda_floats]
  MlaCache mla_;
};

class SequenceState {
 public:
  // What one KDA layer of a step reads and writes.
  struct KdaLayer {
    const float* s_before = nullptr;  // [heads, d, d], committed
    float* s_after = nullptr;         // [heads, d, d], the step's to write, all of it
    struct Tail {
      ConstRows before;  // [taps - 1, heads * d], committed
      Rows after;        // the step's to write, all of it
    } q_tail, k_tail, v_tail;
  };

  // `capacity`: most tokens the sequence may hold. `pool`: where its latents lie, shared with other sequences
  // (LatentPool); null: one of its own.
  static Result<SequenceState> Create(const ModelSpec& spec, int64_t capacity, DType latents = DType::kF32,
                                      std::shared_ptr<MlaPagePool> pool = nullptr);
  static std::shared_ptr<MlaPagePool> LatentPool(const ModelSpec& spec, DType latents = DType::kF32);
  static uint64_t KdaBytes(const ModelSpec& spec);  // both copies
  static uint64_t MlaBytes(const ModelSpec& spec, int64_t capacity, DType latents = DType::kF32);
  // What the pool of all sequences takes beyond those.
  static uint64_t MlaSlackBytes(const ModelSpec& spec, DType latents = DType::kF32);

  int64_t length() const { return length_; }  // tokens the state describes
  int64_t capacity() const { return capacity_; }
  int64_t mla_layers() const { return mla_.layers(); }
  int64_t mla_width() const { return mla_.width(); }
  DType mla_dtype() const { return mla_.dtype(); }
  const MlaCache& mla() const { return mla_; }

  // Before a step of `rows` rows: takes the memory that their latents need.
  Status Prepare(int64_t rows);
  // For the step in progress. kda_index and mla_index as in LayerSpec.
  KdaLayer NextKda(int32_t kda_index);
  // Where latents of the step from its row `first` on go: `count` rows, or fewer where a page ends.
  PackedRows NextMla(int32_t mla_index, int64_t first, int64_t count);
  // What the step's row `rows - 1` may look at: the sequence and the first `rows` rows of the step.
  PagedRows MlaView(int32_t mla_index, int64_t rows) const { return mla_.View(mla_index, length_ + rows); }
  // The step's rows are part of the sequence from here on.
  void Commit(int64_t rows);

  // Back to the empty sequence.
  void Reset();

  // A second sequence that goes on from here. Pages of latents are shared, the KDA state is copied.
  Result<SequenceState> Fork() const;
  Result<StateCheckpoint> Checkpoint() const;
  // Becomes the prefix that was kept, of this sequence or of another one of the same model.
  void Restore(const StateCheckpoint& kept);

  // The KDA state as bytes, for files: the current one, and the next one for who fills it whole and then commits.
  Bytes CurrentKdaBytes() const { return HalfBytes(current_); }
  MutBytes NextKdaBytes() { return HalfBytes(1 - current_); }

  // The committed state, for taps and tests.
  const float* CurrentS(int32_t kda_index) const;                                  // [heads, d, d]
  PagedRows CurrentMla(int32_t mla_index) const { return MlaView(mla_index, 0); }  // [length, latent + rope]

 private:
  MutBytes HalfBytes(int copy) const;
  float* KdaBase(int copy, int32_t kda_index) const;

  int64_t heads_ = 0, head_dim_ = 0, tail_rows_ = 0;
  int64_t kda_layers_ = 0;
  int64_t kda_floats_ = 0;  // of one layer: S, then the three tails
  int64_t length_ = 0, capacity_ = 0;
  int current_ = 0;    // which half of kda_ is committed
  AlignedBuffer kda_;  // [2, kda_layers, kda_floats]
  MlaCache mla_;
};

}  // namespace deltafin
