// MixResiduals: what a sublayer reads: the running sum of the open block and the finished blocks, weighed by attention
// over depth (K3 technical report, section 2.2, equations 9-10). Before the first block ends there is nothing to mix.
//
// A function over the step's activations, used by the forward pass and by whoever asks a layer ahead of it.
#pragma once

#include "backend/backend.h"
#include "model/activations.h"

namespace deltafin {

// a.blocks(), a.prefix_sum -> out. `proj` [1, H], `norm` [H].
inline void MixResiduals(Backend& backend, const Activations& a, const TensorView& proj, const TensorView& norm,
                         float eps, const Rows& out) {
  if (a.blocks().empty()) {
    backend.Copy({.x = a.prefix_sum, .out = out});
    return;
  }
  backend.MixResiduals(
      {.blocks = a.blocks(), .prefix_sum = a.prefix_sum, .proj = proj, .norm = norm, .eps = eps, .out = out});
}

}  // namespace deltafin
