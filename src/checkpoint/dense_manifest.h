// DenseManifest: what a folder of packed dense weights holds: one file a layer and one for the head, and where each
// tensor lies in them.
//
// Text form (JSON, with its own checksum) in docs/FORMAT.md, "packed dense weights". The same form, under another name
// and with fewer units, says what an unfinished pack has done. A value type; parsing is a pure function and is fuzzed.
// Errors: kCorrupt (torn, contradicts itself), kUnsupported (a newer version).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deltafin {

struct DenseTensor {
  std::string name;            // in full, as in the checkpoint
  DType dtype = DType::kBf12;  // as stored: kBf12, kBF16 or kF32
  Shape shape;                 // as in the checkpoint
  uint64_t offset = 0;         // in the unit's file, a multiple of kBf12Alignment
  uint64_t bytes = 0;
  int64_t whole_rows = 0;  // kBf12: rows that stayed BF16
  uint64_t escapes = 0;    // kBf12

  bool operator==(const DenseTensor&) const = default;
};

struct DenseUnit {
  int32_t unit = 0;                  // layer; the number of layers for the head
  uint64_t bytes = 0;                // of the file, whole pages; bytes between tensors are zero
  uint64_t hash = 0;                 // Hash64 of the whole file
  std::vector<DenseTensor> tensors;  // ascending by offset

  bool operator==(const DenseUnit&) const = default;
};

inline constexpr uint64_t kMaxDenseManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kDensePage = 4096;
inline constexpr std::string_view kDensePrefix = "deltafin-dense";
inline constexpr std::string_view kDenseManifestName = "deltafin-dense.json";
inline constexpr std::string_view kDensePartialName = "deltafin-dense.partial.json";

struct DenseManifest {
  uint64_t model_id = 0;  // DenseModelId() of the checkpoint
  int32_t layers = 0;
  std::vector<DenseUnit> units;  // ascending; all layers and the head in a finished folder

  bool complete() const { return units.size() == static_cast<size_t>(layers) + 1; }
  const DenseUnit* Find(int32_t unit) const;
  uint64_t bytes() const;  // of all units
  // "deltafin-dense-layer-007.bin", "deltafin-dense-head.bin".
  std::string FileName(int32_t unit) const;

  std::string ToText() const;
  static Result<DenseManifest> FromText(std::string_view text, const std::string& what);
};

}  // namespace deltafin
