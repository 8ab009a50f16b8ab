#include "checkpoint/compact_scales.h"

#include <algorithm>
#include <cstring>

namespace deltafin {
namespace {

constexpr uint8_t kWindow = 15;                  // largest scale above the base
constexpr uint8_t kLargestBase = 254 - kWindow;  // so that no four bits decode to 255
constexpr ExpertMatrix kMatrices[] = {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3};

const Mxfp4View& ViewOf(const ExpertWeights& weights, ExpertMatrix m) {
  return m == ExpertMatrix::kW1 ? weights.w1 : m == ExpertMatrix::kW2 ? weights.w2 : weights.w3;
}

uint64_t PackedBytes(const ExpertGeometry& geometry) {
  uint64_t bytes = 0;
  for (const ExpertMatrix m : kMatrices) bytes += static_cast<uint64_t>(geometry.packed_bytes(m));
  return bytes;
}

// Even in every spec: rows and columns are multiples of 32.
uint64_t ScaleBytes(const ExpertGeometry& geometry, ExpertMatrix m, uint8_t base) {
  const auto bytes = static_cast<uint64_t>(geometry.scale_bytes(m));
  return base == kWholeScales ? bytes : bytes / 2;
}

void PackScales(const uint8_t* from, uint64_t count, uint8_t base, uint8_t* to) {
  for (uint64_t i = 0; i < count / 2; ++i) {
    const auto low = static_cast<uint8_t>(from[2 * i] - base), high = static_cast<uint8_t>(from[2 * i + 1] - base);
    to[i] = static_cast<uint8_t>(low | high << 4);
  }
}

// `to` may begin inside `from`, not before it: goes from the end in blocks that are copied out first, which also lets
// the compiler use vectors.
void UnpackScales(const uint8_t* from, uint64_t count, uint8_t base, uint8_t* to) {
  constexpr uint64_t kBlock = 64;
  uint8_t in[kBlock], out[2 * kBlock];
  for (uint64_t left = count / 2; left > 0;) {
    const uint64_t block = std::min(kBlock, left);
    left -= block;
    std::memcpy(in, from + left, block);
    for (uint64_t i = 0; i < block; ++i) {
      out[2 * i] = static_cast<uint8_t>(base + (in[i] & 15));
      out[2 * i + 1] = static_cast<uint8_t>(base + (in[i] >> 4));
    }
    std::memcpy(to + 2 * left, out, 2 * block);
  }
}

}  // namespace

std::optional<uint8_t> CompactBase(Bytes scales) {
  uint8_t smallest = 255, largest = 0;
  for (const std::byte scale : scales) {
    smallest = std::min(smallest, static_cast<uint8_t>(scale));
    largest = std::max(largest, static_cast<uint8_t>(scale));
  }
  if (scales.empty() || smallest > kLargestBase || largest - smallest > kWindow) return std::nullopt;
  return smallest;
}

int WholeMatrices(const ScaleBases& bases) {
  return static_cast<int>(std::count(bases.begin(), bases.end(), kWholeScales));
}

uint64_t PackedRecordBytes(const ExpertGeometry& geometry, int whole) {
  const auto scales = static_cast<uint64_t>(geometry.scale_bytes(ExpertMatrix::kW1));
  const auto count = static_cast<uint64_t>(whole);
  return PackedBytes(geometry) + count * scales + (3 - count) * (scales / 2);
}

ExpertRecordLayout PackedRecordLayout(const ExpertGeometry& geometry) {
  ExpertRecordLayout layout;
  uint64_t packed_at = 0, scales_at = PackedBytes(geometry);
  for (const ExpertMatrix m : kMatrices) {
    const auto i = static_cast<size_t>(m);
    layout.packed_offset[i] = static_cast<uint32_t>(packed_at);
    layout.scale_offset[i] = static_cast<uint32_t>(scales_at);
    packed_at += static_cast<uint64_t>(geometry.packed_bytes(m));
    scales_at += static_cast<uint64_t>(geometry.scale_bytes(m));
  }
  return layout;
}

uint64_t PackedScaleOffset(const ExpertGeometry& geometry, const ScaleBases& bases, ExpertMatrix matrix) {
  uint64_t at = PackedBytes(geometry);
  for (const ExpertMatrix m : kMatrices) {
    if (m == matrix) break;
    at += ScaleBytes(geometry, m, bases[static_cast<size_t>(m)]);
  }
  return at;
}

void PackRecord(const ExpertGeometry& geometry, const ExpertWeights& source, const ScaleBases& bases, std::byte* out) {
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (const ExpertMatrix m : kMatrices) {
    const auto bytes = static_cast<uint64_t>(geometry.packed_bytes(m));
    std::memcpy(to, ViewOf(source, m).packed, bytes);
    to += bytes;
  }
  for (const ExpertMatrix m : kMatrices) {
    const uint8_t base = bases[static_cast<size_t>(m)];
    const auto count = static_cast<uint64_t>(geometry.scale_bytes(m));
    if (base == kWholeScales)
      std::memcpy(to, ViewOf(source, m).scale, count);
    else
      PackScales(ViewOf(source, m).scale, count, base, to);
    to += ScaleBytes(geometry, m, base);
  }
}

ExpertWeights UnpackRecord(const ExpertGeometry& geometry, const ScaleBases& bases, std::byte* record) {
  const ExpertRecordLayout layout = PackedRecordLayout(geometry);
  auto* bytes = reinterpret_cast<uint8_t*>(record);
  // From the last matrix to the first: every one moves up, into room that the ones after it have left.
  for (const ExpertMatrix m : {ExpertMatrix::kW3, ExpertMatrix::kW2, ExpertMatrix::kW1}) {
    const uint8_t base = bases[static_cast<size_t>(m)];
    const auto count = static_cast<uint64_t>(geometry.scale_bytes(m));
    const uint8_t* from = bytes + PackedScaleOffset(geometry, bases, m);
    uint8_t* to = bytes + layout.scale_offset[static_cast<size_t>(m)];
    if (base != kWholeScales)
      UnpackScales(from, count, base, to);
    else if (from != to)
      std::memmove(to, from, count);
  }
  return ViewExpert(geometry, layout, record);
}

}  // namespace deltafin
