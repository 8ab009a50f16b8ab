#include "synth/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace deltafin {
namespace {

// Published first outputs for seed 1234567.
TEST(SplitMix, GivesThePublishedSequence) {
  uint64_t state = 1234567;
  EXPECT_EQ(SplitMix(state), 6457827717110365317u);
  EXPECT_EQ(SplitMix(state), 3203168211198807973u);
  EXPECT_EQ(SplitMix(state), 9817491932198370423u);
}

// Published first outputs for state 1, 2, 3, 4.
TEST(Random, GivesThePublishedXoshiroSequence) {
  Random random(std::array<uint64_t, 4>{1, 2, 3, 4});
  EXPECT_EQ(random.Next(), 11520u);
  EXPECT_EQ(random.Next(), 0u);
  EXPECT_EQ(random.Next(), 1509978240u);
  EXPECT_EQ(random.Next(), 1215971899390074240u);
}

TEST(FillBell, HasTheMeanAndRmsAskedFor) {
  Random random(7);
  std::vector<float> values(200001);
  FillBell(random, 3, 0.5f, values);
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += (v - 3.0) * (v - 3.0);
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 3, 0.01);
  EXPECT_NEAR(std::sqrt(squares / n), 0.5, 0.01);
}

TEST(MixSeed, DiffersByPartAndName) {
  EXPECT_NE(MixSeed(1, uint64_t{0}), MixSeed(1, uint64_t{1}));
  EXPECT_NE(MixSeed(1, uint64_t{0}), MixSeed(2, uint64_t{0}));
  EXPECT_NE(MixSeed(1, "a"), MixSeed(1, "b"));
}

}  // namespace
}  // namespace deltafin
