#include "checkpoint/compact_scales.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace deltafin {
namespace {

using Scales = std::vector<uint8_t>;

std::optional<uint8_t> BaseOf(const Scales& scales) { return CompactBase(std::as_bytes(std::span(scales))); }

TEST(CompactBase, IsTheSmallestScaleWhenAllAreWithin16Exponents) {
  EXPECT_EQ(BaseOf({120, 121, 119}), 119);
  EXPECT_EQ(BaseOf({100, 115}), 100);
  EXPECT_EQ(BaseOf({7, 7, 7, 7}), 7);
  EXPECT_EQ(BaseOf({0, 15}), 0);
  EXPECT_EQ(BaseOf({239, 254}), 239);
}

TEST(CompactBase, IsRefusedOutsideTheWindowAndWhereFourBitsCouldReach255) {
  EXPECT_EQ(BaseOf({100, 116}), std::nullopt);
  EXPECT_EQ(BaseOf({0, 16}), std::nullopt);
  EXPECT_EQ(BaseOf({240, 240}), std::nullopt);
  EXPECT_EQ(BaseOf({250, 255}), std::nullopt);
  EXPECT_EQ(BaseOf({255}), std::nullopt);
  EXPECT_EQ(BaseOf({}), std::nullopt);
}

TEST(CompactBase, OneScaleAnywhereDecides) {
  for (size_t at = 0; at < 200; ++at) {
    Scales scales(200, 60);
    scales[at] = 76;
    EXPECT_EQ(BaseOf(scales), std::nullopt) << at;
    scales[at] = 75;
    EXPECT_EQ(BaseOf(scales), 60) << at;
    scales[at] = 45;
    EXPECT_EQ(BaseOf(scales), 45) << at;
  }
}

// An expert in the order of no shard, so that offsets matter.
struct Expert {
  explicit Expert(const ExpertGeometry& geometry) : geometry(geometry) {
    uint32_t at = 13;
    for (const ExpertMatrix m : {ExpertMatrix::kW3, ExpertMatrix::kW1, ExpertMatrix::kW2}) {
      layout.scale_offset[static_cast<size_t>(m)] = at;
      at += static_cast<uint32_t>(geometry.scale_bytes(m));
      layout.packed_offset[static_cast<size_t>(m)] = at;
      at += static_cast<uint32_t>(geometry.packed_bytes(m));
    }
    bytes.resize(at);
    std::mt19937_64 random(9);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  }
  ExpertWeights weights() const { return ViewExpert(geometry, layout, bytes.data()); }
  void SetScales(ExpertMatrix m, uint8_t first, int window) {
    std::mt19937_64 random(first);
    std::byte* scales = bytes.data() + layout.scale_offset[static_cast<size_t>(m)];
    for (int64_t i = 0; i < geometry.scale_bytes(m); ++i)
      scales[i] = static_cast<std::byte>(first + random() % static_cast<uint64_t>(window));
    scales[0] = static_cast<std::byte>(first);
  }

  ExpertGeometry geometry;
  ExpertRecordLayout layout;
  std::vector<std::byte> bytes;
};

void ExpectEqual(const Mxfp4View& got, const Mxfp4View& expected) {
  const auto packed = static_cast<size_t>(expected.rows * expected.cols / 2);
  const auto scales = static_cast<size_t>(expected.rows * expected.cols / kMxfp4Group);
  ASSERT_EQ(got.rows, expected.rows);
  ASSERT_EQ(got.cols, expected.cols);
  EXPECT_EQ(std::memcmp(got.packed, expected.packed, packed), 0);
  EXPECT_EQ(std::memcmp(got.scale, expected.scale, scales), 0);
}

TEST(PackedRecord, UnpacksToTheSameBytesForEveryChoiceOfCompactMatrices) {
  // 32 x 32 has the fewest scales; the others have an odd number of blocks of the unpacking loop.
  for (const ExpertGeometry geometry : {ExpertGeometry(32, 32), ExpertGeometry(96, 160), ExpertGeometry(352, 416)}) {
    for (int choice = 0; choice < 8; ++choice) {
      Expert expert(geometry);
      ScaleBases bases = kAllScalesWhole;
      for (int m = 0; m < 3; ++m) {
        const auto first = static_cast<uint8_t>(40 + 50 * m);
        if ((choice >> m & 1) == 0) continue;
        expert.SetScales(static_cast<ExpertMatrix>(m), first, 16);
        bases[static_cast<size_t>(m)] = first;
      }
      const int whole = WholeMatrices(bases);
      const uint64_t packed = PackedRecordBytes(geometry, whole), unpacked = PackedRecordBytes(geometry, 3);
      EXPECT_EQ(unpacked, static_cast<uint64_t>(geometry.record_bytes()));
      EXPECT_EQ(packed, unpacked - static_cast<uint64_t>(3 - whole) *
                                       static_cast<uint64_t>(geometry.scale_bytes(ExpertMatrix::kW1)) / 2);
      std::vector<std::byte> record(packed + 1, std::byte{0xa5});
      PackRecord(geometry, expert.weights(), bases, record.data());
      EXPECT_EQ(record.back(), std::byte{0xa5}) << "nothing is written past the packed bytes";
      record.resize(unpacked);
      record.push_back(std::byte{0x5a});
      const ExpertWeights got = UnpackRecord(geometry, bases, record.data());
      EXPECT_EQ(record.back(), std::byte{0x5a}) << "nothing is written past the unpacked bytes";
      ExpectEqual(got.w1, expert.weights().w1);
      ExpectEqual(got.w2, expert.weights().w2);
      ExpectEqual(got.w3, expert.weights().w3);
    }
  }
}

TEST(PackedRecord, HasThePackedBytesFirstAndFourBitsAScaleWithTheEvenOneLow) {
  const ExpertGeometry geometry(32, 32);  // 512 packed bytes and 32 scales a matrix
  Expert expert(geometry);
  expert.SetScales(ExpertMatrix::kW2, 100, 16);
  const ScaleBases bases = {kWholeScales, 100, kWholeScales};
  std::vector<std::byte> record(PackedRecordBytes(geometry, 2));
  ASSERT_EQ(record.size(), 3u * 512 + 32 + 16 + 32);
  PackRecord(geometry, expert.weights(), bases, record.data());
  const ExpertWeights weights = expert.weights();
  EXPECT_EQ(std::memcmp(record.data(), weights.w1.packed, 512), 0);
  EXPECT_EQ(std::memcmp(record.data() + 512, weights.w2.packed, 512), 0);
  EXPECT_EQ(std::memcmp(record.data() + 1024, weights.w3.packed, 512), 0);
  EXPECT_EQ(std::memcmp(record.data() + 1536, weights.w1.scale, 32), 0);
  for (size_t i = 0; i < 32; ++i) {
    const auto pair = static_cast<uint8_t>(record[1568 + i / 2]);
    EXPECT_EQ(100 + (i % 2 == 0 ? pair & 15 : pair >> 4), weights.w2.scale[i]) << i;
  }
  EXPECT_EQ(std::memcmp(record.data() + 1584, weights.w3.scale, 32), 0);
  EXPECT_EQ(PackedScaleOffset(geometry, bases, ExpertMatrix::kW1), 1536u);
  EXPECT_EQ(PackedScaleOffset(geometry, bases, ExpertMatrix::kW2), 1568u);
  EXPECT_EQ(PackedScaleOffset(geometry, bases, ExpertMatrix::kW3), 1584u);
}

TEST(PackedRecord, HasTheSizesOfK3) {
  const ExpertGeometry k3(3584, 3072);
  EXPECT_EQ(PackedRecordBytes(k3, 3), 17'547'264u);
  EXPECT_EQ(PackedRecordBytes(k3, 0), 17'031'168u);  // 3 x (5,505,024 + 172,032)
  EXPECT_EQ(PackedRecordBytes(k3, 0) % 4096, 0u);
}

TEST(PackedRecord, NoBytesOfACompactMatrixGiveAScaleThatIsNotANumber) {
  const ExpertGeometry geometry(32, 32);
  std::vector<std::byte> record(PackedRecordBytes(geometry, 3), std::byte{0xff});
  const ExpertWeights weights = UnpackRecord(geometry, {239, 239, 239}, record.data());
  EXPECT_EQ(FindBadScale(weights), std::nullopt);
  EXPECT_EQ(weights.w3.scale[31], 254);
}

}  // namespace
}  // namespace deltafin
