// YaRN frequencies of the released drafter and of the small ones: the tables of the specification of drafting.
#include "draft/yarn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace deltafin {
namespace {

YarnParameters Parameters(int64_t dims, double factor, int64_t original) {
  return {.dims = dims,
          .theta = 50000,
          .factor = factor,
          .original_positions = original,
          .beta_fast = 32,
          .beta_slow = 1,
          .mscale = 1,
          .mscale_all_dim = 1};
}

TEST(Yarn, FrequenciesOfTheReleasedDrafter) {
  const std::vector<double> f = YarnFrequencies(Parameters(64, 32, 32768));
  ASSERT_EQ(f.size(), 32u);
  const std::map<size_t, double> expected = {{0, 1.0},
                                             {1, 0.7131110849},
                                             {8, 0.06687403050},
                                             {15, 0.006271303377},
                                             {16, 0.004078283073},
                                             {17, 0.002627408010},
                                             {20, 6.472429222e-4},
                                             {23, 1.239098939e-4},
                                             {25, 2.544698367e-5},
                                             {26, 4.752661605e-6},
                                             {28, 2.416858742e-6},
                                             {31, 8.764412912e-7}};
  for (const auto& [i, value] : expected) EXPECT_NEAR(f[i], value, value * 1e-9) << i;
}

TEST(Yarn, FrequenciesOfTheNanoDrafter) {
  const std::vector<double> f = YarnFrequencies(Parameters(16, 4, 1024));
  const double expected[] = {
      1, 0.2586001363, 0.05015552287, 0.008646816701, 0.001118033989, 2.891237419e-4, 7.476743906e-5, 1.933486993e-5};
  ASSERT_EQ(f.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(f[i], expected[i], expected[i] * 1e-9) << i;
}

TEST(Yarn, FrequenciesOfTheSmallExample) {
  const std::vector<double> f = YarnFrequencies(Parameters(4, 4, 32));
  EXPECT_NEAR(f[0], 1, 1e-12);
  EXPECT_NEAR(f[1], 0.001118033989, 1e-12);
}

TEST(Yarn, ScalesOfTheScores) {
  EXPECT_NEAR(YarnScoreScale(Parameters(64, 32, 32768)), 1.8132604340, 1e-9);
  EXPECT_NEAR(YarnScoreScale(Parameters(64, 32, 32768)) / std::sqrt(192.0), 0.1308607999630, 1e-10);
  EXPECT_NEAR(YarnScoreScale(Parameters(16, 4, 1024)) / std::sqrt(48.0), 0.1871303352, 1e-9);
  EXPECT_NEAR(YarnScoreScale(Parameters(4, 4, 32)) / std::sqrt(8.0), 0.4583738366, 1e-9);
  EXPECT_EQ(YarnRotationScale(Parameters(64, 32, 32768)), 1);
}

TEST(Yarn, TurnsAdjacentPairs) {
  float x[] = {1, 0, 0, 2};
  RotatePairs({0.5, 0.25}, 1, 3, x);
  EXPECT_NEAR(x[0], std::cos(1.5), 1e-6);
  EXPECT_NEAR(x[1], std::sin(1.5), 1e-6);
  EXPECT_NEAR(x[2], -2 * std::sin(0.75), 1e-6);
  EXPECT_NEAR(x[3], 2 * std::cos(0.75), 1e-6);
}

}  // namespace
}  // namespace deltafin
