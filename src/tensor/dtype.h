// dtype.h: element types that occur in the release's files, with their size and their spelling in safetensors headers,
// and our own packed form of BF16 matrices.
//
// MXFP4 is not one of them: an expert's matrix is two U8 tensors (tensor/mxfp4.h). kBf12 (tensor/bf12.h) occurs in
// packed dense weights only, never in a shard; matrix products read it, nothing else does. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace deltafin {

enum class DType : uint8_t { kF32, kBF16, kU8, kI64, kBf12 };

// Of an element; 0 for kBf12, whose size depends on the values.
constexpr int64_t ByteSize(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
    case DType::kI64:
      return 8;
    case DType::kBf12:
      return 0;
  }
  return 0;
}

// As safetensors headers spell them.
constexpr std::string_view ToString(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kU8:
      return "U8";
    case DType::kI64:
      return "I64";
    case DType::kBf12:
      return "BF12";
  }
  return "?";
}

}  // namespace deltafin
