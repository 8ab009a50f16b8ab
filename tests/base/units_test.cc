#include "base/units.h"

#include <gtest/gtest.h>

namespace deltafin {
namespace {

TEST(ParseSize, DecimalUnitsArePowersOf1000) {
  EXPECT_EQ(*ParseSize("1KB"), 1000u);
  EXPECT_EQ(*ParseSize("1.5 GB"), 1500000000u);
  EXPECT_EQ(*ParseSize("2tb"), 2000000000000u);
}

TEST(ParseSize, BinaryUnitsArePowersOf1024) {
  EXPECT_EQ(*ParseSize("1KiB"), 1024u);
  EXPECT_EQ(*ParseSize("24GiB"), uint64_t{24} << 30);
  EXPECT_EQ(*ParseSize("0.5MiB"), 524288u);
}

class BadSize : public testing::TestWithParam<const char*> {};

TEST_P(BadSize, IsRefusedWithAdvice) {
  const Result<uint64_t> size = ParseSize(GetParam());
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(size.error().message().find("GiB"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, BadSize,
                         testing::Values("", "8", "8.5", "-1GB", "GB", "1XB", "1GBx", "1 G", "nanGB", "infGB", "0x10GB",
                                         "1e300GB", "1Gi", "1 kib b"));

TEST(FormatBytes, ShowsThreeDigits) {
  EXPECT_EQ(FormatBytes(812), "812 B");
  EXPECT_EQ(FormatBytes(17547264), "17.5 MB");
  EXPECT_EQ(FormatBytes(1560860324864), "1.56 TB");
  EXPECT_EQ(FormatBytes(999999), "1.00 MB");
}

TEST(FormatSeconds, ChoosesTheUnit) {
  EXPECT_EQ(FormatSeconds(0.84), "0.8 s");
  EXPECT_EQ(FormatSeconds(45.2), "45 s");
  EXPECT_EQ(FormatSeconds(200), "3 min 20 s");
  EXPECT_EQ(FormatSeconds(7500), "2 h 05 min");
}

}  // namespace
}  // namespace deltafin
