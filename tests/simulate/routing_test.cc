// Made-up routing has the statistics it was given; recorded routing is what was recorded.
#include "simulate/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "k3_shape.h"

namespace deltafin::simulate {
namespace {

std::vector<StepExperts> Steps(Routing& routing, int64_t count) {
  std::vector<StepExperts> steps(static_cast<size_t>(count));
  for (StepExperts& step : steps) routing.Next(1, 1, &step);
  return steps;
}

double PartWantedAgain(const std::vector<StepExperts>& steps) {
  double again = 0, all = 0;
  for (size_t t = 1; t < steps.size(); ++t) {
    for (size_t l = 0; l < steps[t].size(); ++l) {
      const std::set<int32_t> before(steps[t - 1][l].begin(), steps[t - 1][l].end());
      for (const int32_t e : steps[t][l]) again += static_cast<double>(before.count(e));
      all += static_cast<double>(steps[t][l].size());
    }
  }
  return again / all;
}

TEST(Routing, ATokenWantsAsManyDistinctExpertsAsTheModelSays) {
  const ModelShape shape = test::K3Shape();
  const auto routing = MakeRouting(shape, K3Statistics(), 5);
  for (const StepExperts& step : Steps(*routing, 3)) {
    ASSERT_EQ(step.size(), 93u);
    EXPECT_TRUE(step[0].empty());
    for (size_t l = 1; l < step.size(); ++l) {
      ASSERT_EQ(step[l].size(), 16u);
      EXPECT_TRUE(std::is_sorted(step[l].begin(), step[l].end()));
      EXPECT_EQ(std::set<int32_t>(step[l].begin(), step[l].end()).size(), 16u);
      EXPECT_GE(step[l].front(), 0);
      EXPECT_LT(step[l].back(), 896);
    }
  }
}

// Published: 30.8 % of a token's experts were wanted by the token before it.
TEST(Routing, TokensWantAsManyOfTheLastOnesExpertsAsPublished) {
  const auto routing = MakeRouting(test::K3Shape(), K3Statistics(), 3);
  EXPECT_NEAR(PartWantedAgain(Steps(*routing, 24)), 0.308, 0.02);
}

// Published: of one row 16, of n rows 16 n^0.71, of all rows at most all.
TEST(Routing, RowsShareExperts) {
  const auto routing = MakeRouting(test::K3Shape(), K3Statistics(), 3);
  StepExperts step;
  const std::pair<int64_t, size_t> published[] = {{3, 35}, {9, 76}, {40, 220}, {512, 896}};
  for (const auto& [rows, experts] : published) {
    routing->Next(rows, 1, &step);
    EXPECT_EQ(step[40].size(), experts) << rows;
  }
  routing->Next(64, 2.28, &step);
  EXPECT_EQ(step[40].size(), 699u);
}

// exp(-rank / 26,000) over 82,432: the first 32 % of the experts have 67 % of the uses, 61 % have 89 %.
TEST(Routing, PopularityFallsAsPublished) {
  const ModelShape shape = test::K3Shape();
  RoutingStatistics independent = K3Statistics();
  independent.keep = independent.recent = 0;
  const auto routing = MakeRouting(shape, independent, 3);
  double third = 0, most = 0, all = 0;
  for (const StepExperts& step : Steps(*routing, 40)) {
    for (size_t l = 0; l < step.size(); ++l) {
      for (const int32_t e : step[l]) {
        const double rank = routing->Rank(static_cast<int32_t>(l), e);
        third += rank < 0.3237;
        most += rank < 0.6098;
        all += 1;
      }
    }
  }
  EXPECT_NEAR(third / all, 0.67, 0.01);
  EXPECT_NEAR(most / all, 0.89, 0.01);
}

TEST(Routing, TheSeedDecides) {
  const ModelShape shape = test::SmallShape(3);
  const auto steps = [&](uint64_t seed) { return Steps(*MakeRouting(shape, K3Statistics(), seed), 20); };
  EXPECT_EQ(steps(1), steps(1));
  EXPECT_NE(steps(1), steps(2));
}

TEST(Routing, ARecordedTraceComesBackStepByStepAndStartsAgain) {
  const ModelShape shape = test::SmallShape(2);
  ExpertTrace trace({.layers = 2, .experts = 8, .experts_per_token = 2, .record_bytes = 1'000'000});
  const std::vector<std::vector<int32_t>> first = {{0, 3}, {1, 2}}, second = {{3, 5}, {2, 7}};
  for (const auto& step : {first, second}) {
    trace.AddBatch(0, step[0]);
    trace.AddBatch(1, step[1]);
    trace.EndStep(1);
  }
  const auto routing = ReplayRouting(shape, trace);
  ASSERT_TRUE(routing);
  StepExperts step;
  for (const auto& expected : {first, second, first}) {
    (*routing)->Next(1, 1, &step);
    EXPECT_EQ(step, expected);
  }
  (*routing)->Next(2, 1, &step);  // the second and the first
  EXPECT_EQ(step, (StepExperts{{0, 3, 5}, {1, 2, 7}}));
  EXPECT_EQ((*routing)->Rank(0, 3), 0);  // the most used
  EXPECT_GT((*routing)->Rank(0, 6), 0.3);
}

TEST(Routing, ATraceOfAnotherModelIsRefused) {
  ExpertTrace trace({.layers = 2, .experts = 9, .experts_per_token = 2, .record_bytes = 1});
  EXPECT_FALSE(ReplayRouting(test::SmallShape(2), trace));
  EXPECT_FALSE(ReplayRouting(test::SmallShape(2),
                             ExpertTrace({.layers = 2, .experts = 8, .experts_per_token = 2, .record_bytes = 1})));
}

}  // namespace
}  // namespace deltafin::simulate
