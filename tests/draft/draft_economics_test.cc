// What several rows cost, how often drafts are right, and how many are worth checking. Expected values: the tables of
// the specification of drafting (part B.4), computed there from rows^0.69.
#include "draft/draft_economics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deltafin {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

DraftChances Same(double chance) {
  DraftChances chances;
  chances.fill(chance);
  return chances;
}

StepCosts Plain(double seconds = 1) {
  StepCosts costs;
  costs.Record(1, seconds);
  return costs;
}

TEST(StepCosts, BeforeAnythingWasMeasuredRowsShareExpertsAsUsual) {
  const double expected[] = {1, 1.61, 2.13, 2.60, 3.04, 3.44, 3.83, 4.20};
  for (int64_t rows = 1; rows <= 8; ++rows) EXPECT_NEAR(StepCosts().Ratio(rows), expected[rows - 1], 0.006) << rows;
  EXPECT_FALSE(StepCosts().known());
}

TEST(StepCosts, WhatWasMeasuredReplacesWhatIsUsual) {
  StepCosts costs = Plain(2);
  for (int i = 0; i < 30; ++i) costs.Record(4, 2 * 3.6);
  EXPECT_NEAR(costs.Ratio(4), 3.6, 0.01);
  EXPECT_NEAR(costs.Ratio(8), 3.6 * std::pow(2, 0.69), 0.02) << "more rows follow from the nearest that were measured";
  EXPECT_NEAR(costs.Ratio(2), std::pow(2, 0.69), 1e-9) << "fewer do not";
}

TEST(StepCosts, MoreRowsNeverCostLess) {
  StepCosts costs = Plain();
  for (int i = 0; i < 30; ++i) {
    costs.Record(2, 3);
    costs.Record(5, 1.5);
  }
  for (int64_t rows = 2; rows <= 8; ++rows) EXPECT_GE(costs.Ratio(rows), costs.Ratio(rows - 1));
}

TEST(StepCosts, AStepThatStalledDoesNotCountInFull) {
  StepCosts costs = Plain();
  costs.Record(2, 1000);
  EXPECT_LT(costs.Ratio(2), 6);
  for (int i = 0; i < 20; ++i) costs.Record(1, 1);
  costs.Record(1, 1000);
  EXPECT_LT(costs.plain_seconds(), 1.7);
}

TEST(StepCosts, OneSlowStepIsDoubtedAndASecondIsBelieved) {
  StepCosts costs = Plain();
  EXPECT_EQ(costs.Record(4, 2.6), StepCosts::Learned::kYes);
  const double before = costs.Ratio(4);
  EXPECT_EQ(costs.Record(4, 4.9), StepCosts::Learned::kDoubted);
  EXPECT_EQ(costs.Ratio(4), before);
  EXPECT_EQ(costs.Record(4, 4.9), StepCosts::Learned::kConfirmed);
  EXPECT_GT(costs.Ratio(4), before);
}

TEST(StepCosts, AFirstPlainStepThatStalledIsSoonForgotten) {
  StepCosts costs = Plain(5);
  costs.Record(1, 1);
  EXPECT_EQ(costs.plain_seconds(), 1);
}

TEST(StepCosts, WhatAPlainStepCostsIsLearnedFasterAfterManyDraftedOnes) {
  StepCosts often = Plain(), seldom = Plain();
  for (int i = 0; i < 20; ++i) often.Record(1, 1);
  for (int i = 0; i < 20; ++i) seldom.Record(1, 1);
  for (int i = 0; i < 10; ++i) seldom.Record(2, 1);
  often.Record(1, 0.5);
  seldom.Record(1, 0.5);
  EXPECT_LT(seldom.plain_seconds(), 0.8);
  EXPECT_GT(often.plain_seconds(), 0.85);
}

TEST(StepCosts, ForgettingGoesBackToWhatIsUsual) {
  StepCosts costs = Plain();
  for (int i = 0; i < 30; ++i) costs.Record(2, 2);
  for (int i = 0; i < 12; ++i) costs.Forget();
  EXPECT_NEAR(costs.Ratio(2), 1.613, 0.01);
  EXPECT_EQ(costs.count(2), 0u);
}

TEST(StepCosts, RowsBeforeAPlainStepSayNothing) {
  StepCosts costs;
  costs.Record(3, 9);
  EXPECT_EQ(costs.count(3), 0u);
}

// The rows of the table of expected speed-ups; 0 drafts where it says less than 1.
TEST(BestDrafts, AreThoseOfTheTable) {
  const StepCosts costs = Plain();
  const auto best = [&](double chance) { return BestDrafts(costs, Same(chance), 7, 0, kNoLimit); };
  EXPECT_EQ(best(0.6).drafts, 0);
  EXPECT_EQ(best(0.7).drafts, 1);
  EXPECT_NEAR(best(0.7).rate, 1.05, 0.006);
  EXPECT_EQ(best(0.8).drafts, 2);
  EXPECT_NEAR(best(0.8).rate, 1.14, 0.006);
  EXPECT_NEAR(best(0.9).rate, 1.36, 0.006);
  EXPECT_EQ(best(0.95).drafts, 7);
  EXPECT_NEAR(best(0.95).rate, 1.60, 0.006);
}

TEST(BestDrafts, ProposingHasToBePaidToo) {
  const StepCosts costs = Plain();
  EXPECT_NEAR(BestDrafts(costs, Same(0.95), 7, 0.5, kNoLimit).rate, 1.60 * 4.2 / 4.7, 0.01);
  EXPECT_EQ(BestDrafts(costs, Same(0.8), 7, 0.5, kNoLimit).drafts, 0);
}

TEST(BestDrafts, NoMoreThanMayBeLost) {
  const StepCosts costs = Plain();
  EXPECT_EQ(BestDrafts(costs, Same(0.95), 7, 0, 0.5).drafts, 0);
  EXPECT_EQ(BestDrafts(costs, Same(0.95), 7, 0, 0.7).drafts, 1);
  EXPECT_EQ(BestDrafts(costs, Same(0.95), 7, 0, 1.7).drafts, 3);
  EXPECT_EQ(BestDrafts(costs, Same(0.95), 2, 0, 1.7).drafts, 2);
}

TEST(DraftRecord, LearnsHowMuchABeliefIsWorth) {
  DraftRecord record;
  Proposal proposal;
  proposal.count = 3;
  proposal.belief.fill(0.5f);
  for (int i = 0; i < 60; ++i) record.Record(proposal, 3, 3);
  DraftChances chances = record.Chances(proposal.belief);
  EXPECT_GT(chances[0], 0.85);
  EXPECT_GT(chances[2], 0.8);
  EXPECT_GT(chances[6], 0.7) << "a position that was never tried is judged like the one before it";
  for (int i = 0; i < 60; ++i) record.Record(proposal, 3, 0);
  chances = record.Chances(proposal.belief);
  EXPECT_LT(chances[0], 0.1);
}

TEST(DraftRecord, PositionsBehindAWrongTokenSayNothing) {
  DraftRecord record;
  Proposal proposal;
  proposal.count = 4;
  proposal.belief.fill(0.7f);
  for (int i = 0; i < 60; ++i) record.Record(proposal, 4, 1);
  const DraftChances chances = record.Chances(proposal.belief);
  EXPECT_GT(chances[0], 0.85);
  EXPECT_LT(chances[1], 0.15);
}

TEST(DraftRecord, NeverCertainAndNeverImpossible) {
  DraftRecord record;
  Proposal proposal;
  proposal.count = 1;
  proposal.belief.fill(1.0f);
  EXPECT_LE(record.Chances(proposal.belief)[0], 0.98);
  for (int i = 0; i < 1000; ++i) record.Record(proposal, 1, 0);
  EXPECT_GT(record.Chances(proposal.belief)[0], 0);
}

}  // namespace
}  // namespace deltafin
