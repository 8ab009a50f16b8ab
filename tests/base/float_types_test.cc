#include "base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>

namespace deltafin {
namespace {

TEST(Bf16, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(value))));
    else
      ASSERT_EQ(FloatToBf16(value), bits);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, down to even
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // a tie, up to even
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

TEST(E2M1, HasTheSixteenValuesOfTheFormat) {
  const float expected[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
  for (uint8_t nibble = 0; nibble < 16; ++nibble) {
    EXPECT_EQ(E2M1ToFloat(nibble), expected[nibble]);
    EXPECT_EQ(std::signbit(E2M1ToFloat(nibble)), nibble >= 8);
  }
}

TEST(E8M0, IsAPowerOfTwoBiasedBy127) {
  EXPECT_EQ(E8M0ToFloat(0), std::ldexp(1.0f, -127));  // a subnormal
  EXPECT_EQ(E8M0ToFloat(1), std::ldexp(1.0f, -126));
  EXPECT_EQ(E8M0ToFloat(127), 1.0f);
  EXPECT_EQ(E8M0ToFloat(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(E8M0ToFloat(255)));
}

}  // namespace
}  // namespace deltafin
