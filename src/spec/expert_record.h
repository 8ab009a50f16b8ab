// ExpertRecord: where the six tensors of one routed expert lie inside one contiguous piece of bytes.
//
// In the release's shards the six lie back to back (w1.weight_packed, w1.weight_scale, w2..., w3...; 17,547,264 bytes
// at K3's sizes), in an order that the format does not promise, so the offsets are data. w1 is the gate and w3 the up
// projection [moe_intermediate, expert_hidden], w2 the down projection [expert_hidden, moe_intermediate].
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "spec/model_spec.h"
#include "tensor/mxfp4.h"

namespace deltafin {

enum class ExpertMatrix : uint8_t { kW1, kW2, kW3 };

constexpr std::string_view ToString(ExpertMatrix matrix) {
  return matrix == ExpertMatrix::kW1 ? "w1" : matrix == ExpertMatrix::kW2 ? "w2" : "w3";
}

struct ExpertWeights {
  Mxfp4View w1, w2, w3;
};

struct ExpertRecordLayout {
  // Byte offsets inside the record, indexed by ExpertMatrix.
  std::array<uint32_t, 3> packed_offset{};
  std::array<uint32_t, 3> scale_offset{};
  bool operator==(const ExpertRecordLayout&) const = default;
};

// Sizes of an expert of `spec`, independent of the layout.
struct ExpertGeometry {
  int64_t hidden = 0;        // routed_expert_hidden_size
  int64_t intermediate = 0;  // moe_intermediate_size

  explicit ExpertGeometry(const ModelSpec& spec)
      : hidden(spec.routed_expert_hidden_size), intermediate(spec.moe_intermediate_size) {}
  // Both multiples of kMxfp4Group.
  ExpertGeometry(int64_t hidden_in, int64_t intermediate_in) : hidden(hidden_in), intermediate(intermediate_in) {}

  int64_t rows(ExpertMatrix m) const { return m == ExpertMatrix::kW2 ? hidden : intermediate; }
  int64_t cols(ExpertMatrix m) const { return m == ExpertMatrix::kW2 ? intermediate : hidden; }
  int64_t packed_bytes(ExpertMatrix m) const { return rows(m) * cols(m) / 2; }
  int64_t scale_bytes(ExpertMatrix m) const { return rows(m) * cols(m) / kMxfp4Group; }
  int64_t record_bytes() const {
    int64_t total = 0;
    for (const ExpertMatrix m : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3})
      total += packed_bytes(m) + scale_bytes(m);
    return total;
  }
};

// Views into `record`, which must hold record_bytes().
ExpertWeights ViewExpert(const ExpertGeometry& geometry, const ExpertRecordLayout& layout, const std::byte* record);

struct BadScale {
  ExpertMatrix matrix;
  int64_t row;
};
// The first scale byte that is not a number (255), if any. Reads the scales only, 1/17 of the record.
std::optional<BadScale> FindBadScale(const ExpertWeights& weights);

}  // namespace deltafin
