// ids.h: the numbers that name things: tokens and routed experts.
//
// Layers and experts count from 0 (config.json counts layers from 1; that is converted once, in spec/model_spec.cc).
// Value types.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace deltafin {

using TokenId = int32_t;  // vocabulary row; plain, because texts are long arrays of them

// One routed expert: 0-based layer, 0-based expert of that layer.
struct ExpertKey {
  int32_t layer = 0;
  int32_t expert = 0;
  auto operator<=>(const ExpertKey&) const = default;
};

}  // namespace deltafin

template <>
struct std::hash<deltafin::ExpertKey> {
  size_t operator()(const deltafin::ExpertKey& key) const noexcept {
    return (static_cast<size_t>(static_cast<uint32_t>(key.layer)) << 32) | static_cast<uint32_t>(key.expert);
  }
};
