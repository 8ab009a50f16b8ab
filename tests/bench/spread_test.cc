// Statistics against tables and against what they promise: how often a next median lies where it was said to.
#include "bench/spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deltafin {
namespace {

// Tables of Student's distribution.
TEST(StudentQuantile, IsThatOfTheTables) {
  EXPECT_NEAR(StudentQuantile(0.975, 1), 12.7062, 1e-3);
  EXPECT_NEAR(StudentQuantile(0.975, 2), 4.30265, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.975, 10), 2.22814, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.995, 1), 63.6567, 1e-2);
  EXPECT_NEAR(StudentQuantile(0.995, 4), 4.60409, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.975, 1000), 1.96234, 1e-4);
}

TEST(SignTest, CountsCoins) {
  EXPECT_DOUBLE_EQ(SignTest(0, 0), 1);
  EXPECT_NEAR(SignTest(5, 5), 2.0 / 32, 1e-12);
  EXPECT_NEAR(SignTest(0, 5), 2.0 / 32, 1e-12);
  EXPECT_NEAR(SignTest(7, 8), 2 * 9.0 / 256, 1e-12);
  EXPECT_DOUBLE_EQ(SignTest(2, 4), 1);
}

TEST(SpreadOf, GivesMiddleEdgesAndQuartiles) {
  const Spread s = SpreadOf({4, 1, 3, 2});
  EXPECT_EQ(s.count, 4);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.max, 4);
  EXPECT_DOUBLE_EQ(s.quartile_low, 1.75);
  EXPECT_DOUBLE_EQ(s.quartile_high, 3.25);
  EXPECT_LE(s.again_low, 1);
  EXPECT_GE(s.again_high, 4);
  EXPECT_EQ(SpreadOf({}).count, 0);
  EXPECT_DOUBLE_EQ(SpreadOf({7}).median, 7);
  EXPECT_DOUBLE_EQ(SpreadOf({7}).again_high, 0);
  EXPECT_DOUBLE_EQ(SpreadOf({7, 9}).again_high, 0);
  EXPECT_DOUBLE_EQ(SpreadOf({7, 7, 7}).again_low, 7);
}

// With normal noise 99 % of the runs should be right; with noise of heavy tails nearly as many.
TEST(SpreadOf, SaysWhereTheNextMedianLies) {
  std::mt19937 random(1);
  for (const int rounds : {3, 5, 8}) {
    for (const bool heavy : {false, true}) {
      int inside = 0;
      const auto run = [&] {
        std::vector<double> values;
        for (int i = 0; i < rounds; ++i) {
          const double noise =
              heavy ? std::student_t_distribution<double>(3)(random) : std::normal_distribution<double>()(random);
          values.push_back(100 * std::exp(0.03 * noise));
        }
        return values;
      };
      for (int i = 0; i < 600; ++i) {
        const Spread first = SpreadOf(run());
        const double next = SpreadOf(run()).median;
        inside += first.again_low <= next && next <= first.again_high ? 1 : 0;
      }
      EXPECT_GE(inside, 600 * 0.975) << rounds << (heavy ? " heavy" : "");
    }
  }
}

TEST(RatioOfMedians, HoldsTheTrueRatioAsOftenAsItSays) {
  std::mt19937 random(2);
  int inside = 0, inside_pairs = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<double> a, b, c;
    for (int k = 0; k < 5; ++k) {
      const double drift = 0.2 * std::normal_distribution<double>()(random);  // of both of a pair
      a.push_back(std::exp(0.03 * std::normal_distribution<double>()(random)));
      b.push_back(1.2 * std::exp(0.06 * std::normal_distribution<double>()(random)));
      c.push_back(a.back() * std::exp(drift));
      b.back() *= std::exp(drift);
      a.back() *= std::exp(0.2 * std::normal_distribution<double>()(random));
    }
    const RatioInterval r = RatioOfMedians(a, b), pairs = RatioOfPairs(c, b);
    inside += r.low <= 1.2 && 1.2 <= r.high ? 1 : 0;
    inside_pairs += pairs.low <= 1.2 && 1.2 <= pairs.high ? 1 : 0;
    ASSERT_LE(r.low, r.ratio);
    ASSERT_GE(r.high, r.ratio);
  }
  EXPECT_GE(inside, 600 * 0.92);
  EXPECT_GE(inside_pairs, 600 * 0.92);
}

TEST(RatioOfPairs, NeedsPairs) {
  EXPECT_DOUBLE_EQ(RatioOfPairs({1, 2, 4}, {2, 4, 8}).ratio, 2);
  EXPECT_DOUBLE_EQ(RatioOfPairs({1, 2, 4}, {2, 4, 8}).low, 2);
  EXPECT_DOUBLE_EQ(RatioOfPairs({1, 2}, {1}).ratio, 0);
  EXPECT_DOUBLE_EQ(RatioOfMedians({2}, {3}).ratio, 1.5);
  EXPECT_DOUBLE_EQ(RatioOfMedians({2}, {3}).high, 0);
}

}  // namespace
}  // namespace deltafin
