// TokenWork: what one token costs at least, from the shapes alone: multiply-adds of its matrices, and weight bytes that
// every token touches.
//
// The work of attention over the context and of the recurrences comes on top; it is small beside the matrices. Pure
// functions of a ModelSpec.
#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace deltafin {

struct TokenWork {
  double dense_macs = 0;   // of all layers' dense matrices
  double expert_macs = 0;  // of the routed experts that a token has in all layers
  double head_macs = 0;    // of logits
  double dense_bytes = 0;  // layers, head, one row of the embedding

  double macs() const { return dense_macs + expert_macs + head_macs; }
};

// `packed_dense_bytes`: of layers and head where they are packed; 0: as the release holds them.
TokenWork WorkOfToken(const ModelSpec& spec, uint64_t packed_dense_bytes = 0);

}  // namespace deltafin
