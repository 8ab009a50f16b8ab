// k3_shape: Kimi K3's shape for tests of the simulator.
#pragma once

#include "simulate/model_shape.h"
#include "synth/shapes.h"

namespace deltafin::test {

inline simulate::ModelShape K3Shape() { return simulate::ModelShape::From(*MakeSynthSpec({.name = "k3"})); }

// Layers that cost nothing but reading: two experts a token of eight, in records of a megabyte.
inline simulate::ModelShape SmallShape(size_t layers) {
  simulate::ModelShape shape;
  shape.layers.assign(layers, simulate::LayerShape{.has_experts = true});
  shape.experts = 8;
  shape.experts_per_token = 2;
  shape.record_bytes = 1e6;
  return shape;
}

}  // namespace deltafin::test
