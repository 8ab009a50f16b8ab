// StepBatch: the rows of one pass through the network: which tokens, and to which sequence each run of rows belongs.
//
// One segment per sequence: decode has one row in it, prefill a chunk of rows. Rows of a segment follow what its state
// already holds. Views only; valid for the call.
#pragma once

#include <cstdint>
#include <span>

#include "base/cancel.h"
#include "base/ids.h"
#include "model/kda_replay.h"
#include "model/sequence_state.h"
#include "tensor/tensor.h"

namespace deltafin {

struct Segment {
  SequenceState* state = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
  // Where what a part of the rows can be committed with is kept; null: all rows are committed when the pass is through.
  // Else none is: the caller takes what it accepts.
  KdaReplay* replay = nullptr;
};

struct StepBatch {
  std::span<const TokenId> tokens;    // [R], each inside the vocabulary
  std::span<const Segment> segments;  // cover rows 0..R-1 in order
  // Rows [logits_from, R) get logits; logits_from == R asks for none (a prompt chunk that is not the last).
  int64_t logits_from = 0;
  Rows logits;         // [R - logits_from, vocab]
  CancelToken cancel;  // looked at before every layer and while waiting for experts

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace deltafin
