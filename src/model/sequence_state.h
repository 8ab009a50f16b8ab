// SequenceState: everything one token sequence carries from step to step: KDA states, convolution tails, MLA latents.
//
// Per KDA layer: S [heads, d (key), d (value)] f32 and three tails [taps - 1, heads * d] f32 (q, k, v inputs of the
// short convolution). Per MLA layer: [capacity, latent + rope] f32, one row a token. At K3's sizes 465 MB of KDA state
// and 55.3 KB a token.
//
// A step is all or nothing. The layers of a step write the next KDA state beside the current one and latents behind
// length(); Commit() makes them current. A step that fails or is cancelled in the middle leaves the sequence exactly as
// it was: nothing has to be undone or computed again. Memory is taken in Create() and committed by the kernel as it is
// touched. Thread rule: engine thread only.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "spec/model_spec.h"
#include "tensor/tensor.h"

namespace deltafin {

class SequenceState {
 public:
  // What one KDA layer of a step reads and writes.
  struct KdaLayer {
    const float* s_before = nullptr;  // [heads, d, d], committed
    float* s_after = nullptr;         // [heads, d, d], the step's to write, all of it
    Rows q_tail, k_tail, v_tail;      // [taps - 1, heads * d], already copies of the committed ones, to be advanced
  };

  // `capacity`: most tokens the sequence may hold.
  static Result<SequenceState> Create(const ModelSpec& spec, int64_t capacity);
  static uint64_t KdaBytes(const ModelSpec& spec);  // both copies
  static uint64_t MlaBytes(const ModelSpec& spec, int64_t capacity);

  int64_t length() const { return length_; }  // tokens the state describes
  int64_t capacity() const { return capacity_; }

  // For the step in progress. kda_index and mla_index as in LayerSpec.
  KdaLayer NextKda(int32_t kda_index);
  Rows MlaRows(int32_t mla_index, int64_t first, int64_t count);  // count rows from position `first`
  // The step's rows are part of the sequence from here on.
  void Commit(int64_t rows);

  // Back to the empty sequence.
  void Reset();

  // The committed state, for taps and tests.
  const float* CurrentS(int32_t kda_index) const;  // [heads, d, d]
  ConstRows CurrentMla(int32_t mla_index) const;   // [length, latent + rope]

 private:
  float* KdaBase(int copy, int32_t kda_index) const;

  int64_t heads_ = 0, head_dim_ = 0, tail_rows_ = 0, latent_width_ = 0;
  int64_t kda_layers_ = 0, mla_layers_ = 0;
  int64_t kda_floats_ = 0;  // of one layer: S, then the three tails
  int64_t length_ = 0, capacity_ = 0;
  int current_ = 0;    // which half of kda_ is committed
  AlignedBuffer kda_;  // [2, kda_layers, kda_floats]
  AlignedBuffer mla_;  // [mla_layers, capacity, latent_width]
};

}  // namespace deltafin
