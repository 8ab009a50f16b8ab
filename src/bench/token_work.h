// TokenWork: what one token costs at least, from the shapes alone: multiply-adds of its matrices, and weight bytes that
// every token touches.
//
// The work of attention over the context and of the recurrences comes on top; it is small beside the matrices. Pure
// functions of a ModelSpec.
#pragma once

#include "spec/model_spec.h"

namespace deltafin {

struct TokenWork {
  double dense_macs = 0;   // of all layers' dense matrices
  double expert_macs = 0;  // of the routed experts that a token has in all layers
  double head_macs = 0;    // of logits
  double dense_bytes = 0;  // as the release holds them: layers, head, one row of the embedding

  double macs() const { return dense_macs + expert_macs + head_macs; }
};

TokenWork WorkOfToken(const ModelSpec& spec);

}  // namespace deltafin
