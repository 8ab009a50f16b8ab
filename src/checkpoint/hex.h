// hex.h: 64-bit names (of sets, models, checksums) as 16 hexadecimal digits, written and read.
//
// One spelling each: lower case, leading zeros. Pure functions; thread-safe. Anything else is refused with nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltafin {

inline std::string ToHex(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[value >> shift & 15];
  return text;
}

// Exactly 16 lower-case digits.
inline std::optional<uint64_t> FromHex(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    if (!digit && !letter) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace deltafin
