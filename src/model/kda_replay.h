// KdaReplay: what a step of several rows keeps of its KDA layers, so that the first few of its rows can become part of
// the sequence without the others.
//
// Truncation does for latents, but a KDA state has been written over by the last row. So the step keeps, of every KDA
// layer, what the recurrence reads: the inputs of the short convolution, its outputs k and v, the raw decay and beta of
// each row, and the layer's two small vectors. Replay() runs the recurrence over the first rows again, from the
// committed state, with the same operation: the same bits as if only they had been computed. Nothing is projected again
// and no weight is read, which may be streamed. 20.4 MB a row at K3's sizes; snapshots of the state would be 465 MB a
// row. Memory is taken in Create(). Thread rule: engine thread only. Errors: kOutOfMemory.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/result.h"
#include "model/sequence_state.h"
#include "spec/model_spec.h"

namespace deltafin {

class KdaReplay {
 public:
  // What one layer of the step computed for some of its heads. [R, heads * d] but for beta, [R, heads].
  struct LayerInputs {
    ConstRows q_proj, k_proj, v_proj;  // inputs of the short convolutions
    ConstRows k, v;                    // their outputs
    ConstRows decay, beta;             // raw
    TensorView a_log, dt_bias;         // of these heads
  };

  static uint64_t Bytes(const ModelSpec& spec, int64_t max_rows);
  static Result<KdaReplay> Create(const ModelSpec& spec, int64_t max_rows);

  int64_t max_rows() const { return max_rows_; }

  // Of every KDA layer of a step of at most max_rows() rows; `inputs` are those of the heads from `first_head` on.
  void Keep(int32_t kda_index, int64_t first_head, const LayerInputs& inputs);
  // Makes the first `rows` rows of the step part of the sequence; its state is still as before the step.
  void Replay(Backend& backend, SequenceState& state, int64_t rows);

 private:
  struct Layer {
    Rows q_proj, k_proj, v_proj, k, v, decay;  // [max_rows, W]
    Rows beta;                                 // [max_rows, h]
    Rows a_log;                                // [1, h]
    Rows dt_bias;                              // [1, W]
  };

  static int64_t FloatsPerLayer(const ModelSpec& spec, int64_t max_rows);
  Layer At(int32_t kda_index) const;

  int64_t max_rows_ = 0;
  int64_t heads_ = 0, head_dim_ = 0, layers_ = 0;
  float lower_bound_ = 0;
  int64_t layer_floats_ = 0;
  AlignedBuffer memory_;  // [layers, layer_floats], then [max_rows, W] for outputs that nobody wants
};

}  // namespace deltafin
