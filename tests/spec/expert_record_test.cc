#include "spec/expert_record.h"

#include <gtest/gtest.h>

#include <vector>

namespace deltafin {
namespace {

ExpertGeometry SmallGeometry() {
  ModelSpec spec;
  spec.routed_expert_hidden_size = 64;
  spec.moe_intermediate_size = 32;
  return ExpertGeometry(spec);
}

// w3, w2, w1, scales before packed: any order is legal.
ExpertRecordLayout ReversedLayout() {
  // w1 and w3 are [32, 64]: 1024 packed, 64 scale bytes; w2 is [64, 32]: the same numbers.
  return {{2 * 1088 + 64, 1088 + 64, 64}, {2 * 1088, 1088, 0}};
}

TEST(ExpertRecord, AddsUpItsSixParts) { EXPECT_EQ(SmallGeometry().record_bytes(), 3 * (1024 + 64)); }

TEST(ExpertRecord, ViewsFollowTheLayout) {
  const std::vector<std::byte> record(3 * 1088);
  const ExpertWeights weights = ViewExpert(SmallGeometry(), ReversedLayout(), record.data());
  const auto* start = reinterpret_cast<const uint8_t*>(record.data());
  EXPECT_EQ(weights.w3.scale, start);
  EXPECT_EQ(weights.w3.packed, start + 64);
  EXPECT_EQ(weights.w2.packed, start + 1152);
  EXPECT_EQ(weights.w1.scale, start + 2176);
  EXPECT_EQ(weights.w2.rows, 64);
  EXPECT_EQ(weights.w2.cols, 32);
  EXPECT_EQ(weights.w1.rows, 32);
  EXPECT_EQ(weights.w1.cols, 64);
}

TEST(ExpertRecord, FindsAScaleThatIsNotANumber) {
  std::vector<std::byte> record(3 * 1088, std::byte{254});
  EXPECT_FALSE(FindBadScale(ViewExpert(SmallGeometry(), ReversedLayout(), record.data())));
  record[1088 + 41] = std::byte{255};  // w2 has one scale per row
  const auto bad = FindBadScale(ViewExpert(SmallGeometry(), ReversedLayout(), record.data()));
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->matrix, ExpertMatrix::kW2);
  EXPECT_EQ(bad->row, 41);
}

TEST(ExpertRecord, ByteTwoHundredFiftyFiveIsFineAmongThePackedOnes) {
  std::vector<std::byte> record(3 * 1088, std::byte{100});
  record[64] = std::byte{255};
  EXPECT_FALSE(FindBadScale(ViewExpert(SmallGeometry(), ReversedLayout(), record.data())));
}

}  // namespace
}  // namespace deltafin
