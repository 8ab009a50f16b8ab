// mxfp4.h: how the release stores a routed expert's matrix.
//
// A matrix [rows, cols] (cols a multiple of 32) is two U8 tensors: packed [rows, cols / 2], byte k of a row holding
// column 2k in the low nibble and 2k + 1 in the high one (E2M1), and scale [rows, cols / 32], one E8M0 byte for 32
// consecutive columns. value = E2M1 * 2^(scale - 127). Scalar definitions: base/float_types.h. Weights are used in this
// order, at any byte address: there is no repacked copy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltafin {

inline constexpr int64_t kMxfp4Group = 32;  // columns that share one scale
inline constexpr int64_t kMxfp4GroupBytes = kMxfp4Group / 2;

struct Mxfp4View {
  const uint8_t* packed = nullptr;  // [rows, cols / 2], no alignment
  const uint8_t* scale = nullptr;   // [rows, cols / 32], no alignment; no byte is 255 (checked when the record is read)
  int64_t rows = 0;                 // outputs
  int64_t cols = 0;                 // inputs

  const uint8_t* packed_row(int64_t r) const { return packed + r * (cols / 2); }
  const uint8_t* scale_row(int64_t r) const { return scale + r * (cols / kMxfp4Group); }
};

}  // namespace deltafin
