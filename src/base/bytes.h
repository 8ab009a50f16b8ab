// bytes.h: spans of bytes, alignment arithmetic, checked addition and multiplication, unaligned loads.
//
// What every layer that handles sizes needs so that none of them writes it again. Alignments are powers of two or any
// other positive number. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace deltafin {

using Bytes = std::span<const std::byte>;
using MutBytes = std::span<std::byte>;

constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) { return value / alignment * alignment; }
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) { return AlignDown(value + alignment - 1, alignment); }
constexpr int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// a * b, or false when the product does not fit.
inline bool MultiplyChecked(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}
inline bool AddChecked(uint64_t a, uint64_t b, uint64_t* sum) { return !__builtin_add_overflow(a, b, sum); }

// Reads a little-endian value from any address.
template <typename T>
T LoadUnaligned(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace deltafin
