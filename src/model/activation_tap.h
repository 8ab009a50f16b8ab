// ActivationTap: sees named intermediate values of a pass, for parity work. Off (a null pointer) it costs nothing.
//
// Names are those of the reference's trace: "embedding", "layers.N.attention", "layers.N.feed_forward",
// "layers.N.prefix_sum", "layers.N.route_ids", "layers.N.route_weights", "final_norm". Called on the engine thread with
// views that are valid for the call.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace deltafin {

class ActivationTap {
 public:
  virtual ~ActivationTap() = default;
  virtual void OnRows(const std::string& name, const ConstRows& rows) = 0;
  virtual void OnIds(const std::string& name, std::span<const int32_t> ids, int64_t per_row) = 0;
};

}  // namespace deltafin
