// compact_scales: scale bytes of a matrix as one base and four bits each, where they fit; bit-exact.
//
// In trained weights all E8M0 scales of a matrix lie within 16 exponents. A matrix whose scales do not (or hold 255)
// keeps its scale bytes whole. A packed expert record is, in this order and without gaps:
//   w1.weight_packed, w2.weight_packed, w3.weight_packed,
//   then for w1, w2, w3 either the scale bytes, or half as many bytes: scale i of the matrix is base + the low (even i)
//   or high (odd i) four bits of byte i / 2; then zeros up to a whole page.
// Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "spec/expert_record.h"

namespace deltafin {

// Base of each matrix (index: ExpertMatrix); kWholeScales: kept as they are.
inline constexpr uint8_t kWholeScales = 255;
using ScaleBases = std::array<uint8_t, 3>;
inline constexpr ScaleBases kAllScalesWhole = {kWholeScales, kWholeScales, kWholeScales};

// The smallest scale, if all of `scales` are within [base, base + 15] and base <= 239.
std::optional<uint8_t> CompactBase(Bytes scales);

// How many of the three keep their scales whole.
int WholeMatrices(const ScaleBases& bases);

// Bytes of a packed record with `whole` (0..3) matrices that keep their scales, without the padding at its end.
// All matrices of K3 and of any valid spec have equally many scales, so only their number counts.
uint64_t PackedRecordBytes(const ExpertGeometry& geometry, int whole);

// Writes the packed form of `source` (an expert as it lies in a shard) to `out` (PackedRecordBytes for these bases).
void PackRecord(const ExpertGeometry& geometry, const ExpertWeights& source, const ScaleBases& bases, std::byte* out);

// Turns a packed record into one whose scales are all whole, in place: `record` has room for
// PackedRecordBytes(geometry, 3). Returns its views.
ExpertWeights UnpackRecord(const ExpertGeometry& geometry, const ScaleBases& bases, std::byte* record);

// Where everything lies in an unpacked record, and where the scales of a matrix begin in a packed one.
ExpertRecordLayout PackedRecordLayout(const ExpertGeometry& geometry);
uint64_t PackedScaleOffset(const ExpertGeometry& geometry, const ScaleBases& bases, ExpertMatrix matrix);

}  // namespace deltafin
