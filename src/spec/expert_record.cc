#include "spec/expert_record.h"

#include <cstring>

#include "base/float_types.h"

namespace deltafin {

ExpertWeights ViewExpert(const ExpertGeometry& geometry, const ExpertRecordLayout& layout, const std::byte* record) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(record);
  const auto view = [&](ExpertMatrix m) {
    const auto i = static_cast<size_t>(m);
    return Mxfp4View{bytes + layout.packed_offset[i], bytes + layout.scale_offset[i], geometry.rows(m), geometry.cols(m)};
  };
  return {view(ExpertMatrix::kW1), view(ExpertMatrix::kW2), view(ExpertMatrix::kW3)};
}

std::optional<BadScale> FindBadScale(const ExpertWeights& weights) {
  for (const ExpertMatrix m : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3}) {
    const Mxfp4View& w = m == ExpertMatrix::kW1 ? weights.w1 : m == ExpertMatrix::kW2 ? weights.w2 : weights.w3;
    const int64_t groups = w.cols / kMxfp4Group;
    const void* found = std::memchr(w.scale, kE8M0NaN, static_cast<size_t>(w.rows * groups));
    if (found != nullptr) return BadScale{m, (static_cast<const uint8_t*>(found) - w.scale) / groups};
  }
  return std::nullopt;
}

}  // namespace deltafin
