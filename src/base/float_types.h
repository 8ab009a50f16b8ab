// float_types.h: scalar definitions of the number formats of the release. Every kernel is tested against these.
//
// BF16  top 16 bits of IEEE binary32.
// E2M1  4-bit float of MXFP4: sign, two exponent bits, one mantissa bit: 0 0.5 1 1.5 2 3 4 6 and their negatives.
// E8M0  scale byte of MXFP4: 2^(byte - 127); byte 0 is the subnormal 2^-127; byte 255 is not a number.
// Source: OCP Microscaling Formats specification 1.0, sections 5.3 and 6.
#pragma once

#include <bit>
#include <cstdint>

namespace deltafin {

constexpr float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; NaN stays NaN.
constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float E2M1ToFloat(uint8_t nibble) {
  constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitude[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

inline constexpr uint8_t kE8M0NaN = 255;

constexpr float E8M0ToFloat(uint8_t scale) {
  if (scale == 0) return std::bit_cast<float>(0x00400000u);  // 2^-127
  if (scale == kE8M0NaN) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(scale) << 23);
}

}  // namespace deltafin
