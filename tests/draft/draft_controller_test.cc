// Whether to draft, from scripted costs and acceptance: every change of state, and how much can be lost at worst.
#include "draft/draft_controller.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace deltafin {
namespace {

// A text of numbers 0, 1, 2, ..., a drafter that is right as often as the script says, and steps that cost what it
// says.
struct World {
  std::function<double(int64_t rows)> cost = [](int64_t rows) { return std::pow(rows, 0.69); };
  std::function<bool(int64_t position)> right = [](int64_t) { return true; };
  std::function<bool(int64_t position)> has_proposal = [](int64_t) { return true; };
  float belief = 0.75f;
  double proposal_seconds = 0;
};

class Decoding {
 public:
  explicit Decoding(World world, DraftLimits limits = {}) : world_(std::move(world)), controller_(1, limits) {}

  // One step; what it did to the state.
  DraftState Step() {
    Proposal proposal;
    std::array<TokenId, kMostDrafts> tokens = {};
    double proposing = 0;
    int64_t drafts = 0;
    const int64_t wanted = controller_.Ask(0, world_.proposal_seconds == 0, 1);
    if (wanted > 0 && world_.has_proposal(position_)) {
      ++asked_;
      proposing = world_.proposal_seconds;
      proposal.count = wanted;
      proposal.belief.fill(world_.belief);
      for (int64_t j = 0; j < wanted; ++j)
        tokens[static_cast<size_t>(j)] =
            world_.right(position_ + j) ? static_cast<TokenId>(position_ + j) : TokenId{-7};
      drafts = controller_.Choose(0, proposal, proposing).drafts;
      if (drafts == 0) controller_.Watch(0, proposal, tokens);
    }
    DraftedStep step;
    step.drafter = drafts > 0 ? 0 : -1;
    step.rows = drafts + 1;
    step.seconds = world_.cost(step.rows);
    while (step.right < drafts && tokens[static_cast<size_t>(step.right)] == position_ + step.right) ++step.right;
    step.tried = drafts;
    std::vector<TokenId> came;
    for (int64_t j = 0; j <= step.right; ++j) came.push_back(static_cast<TokenId>(position_ + j));
    controller_.Record(step, came);
    position_ += step.right + 1;
    seconds_ += step.seconds + proposing;
    steps_ += drafts > 0;
    widest_ = std::max(widest_, drafts);
    return controller_.state();
  }
  void Until(int64_t tokens) {
    while (position_ < tokens) Step();
  }

  World& world() { return world_; }
  const DraftController& controller() const { return controller_; }
  int64_t tokens() const { return position_; }
  double seconds() const { return seconds_; }  // a plain step takes one
  int64_t drafted_steps() const { return steps_; }
  int64_t asked() const { return asked_; }
  int64_t widest() const { return widest_; }
  double loss() const { return seconds_ - static_cast<double>(position_) * world_.cost(1); }

 private:
  World world_;
  DraftController controller_;
  int64_t position_ = 0, steps_ = 0, widest_ = 0, asked_ = 0;
  double seconds_ = 0;
};

TEST(Controller, FirstMeasuresAPlainStep) {
  Decoding run({});
  EXPECT_EQ(run.controller().state(), DraftState::kMeasuring);
  EXPECT_EQ(run.Step(), DraftState::kMeasuring);
  EXPECT_EQ(run.drafted_steps(), 0);
  EXPECT_EQ(run.Step(), DraftState::kDrafting);
}

TEST(Controller, WidensWhileDraftsAreRightAndGains) {
  Decoding run({});
  run.Until(400);
  EXPECT_EQ(run.widest(), 7);
  // Eight tokens in a step of 4.2, and a plain step now and then.
  EXPECT_LT(run.seconds(), 400 / 1.6);
}

TEST(Controller, StopsWhenDraftsGoWrongAndResumesWhenTheyAreRightAgain) {
  Decoding run({});
  run.Until(100);
  EXPECT_EQ(run.controller().state(), DraftState::kDrafting);
  run.world().right = [](int64_t) { return false; };
  run.Until(130);
  EXPECT_NE(run.controller().state(), DraftState::kDrafting);
  const int64_t drafted = run.drafted_steps();
  run.Until(400);
  EXPECT_LE(run.drafted_steps() - drafted, 4) << "tries again rarely";
  const int64_t before = run.drafted_steps();
  run.world().right = [](int64_t) { return true; };
  run.Until(500);
  EXPECT_GT(run.drafted_steps(), before);
  EXPECT_EQ(run.Step(), DraftState::kDrafting) << "what is watched while decoding plainly has shown that it pays again";
}

TEST(Controller, WatchesForNothingWhereAProposalCostsNothing) {
  World world;
  world.right = [](int64_t) { return false; };
  world.belief = 0.4f;  // too little from the start
  Decoding run(world);
  run.Until(500);
  EXPECT_EQ(run.drafted_steps(), 0);
  EXPECT_EQ(run.controller().state(), DraftState::kWatching);
  EXPECT_DOUBLE_EQ(run.loss(), 0);
}

TEST(Controller, AProposalThatCostsSomethingIsAskedForEverMoreRarely) {
  World world;
  world.right = [](int64_t position) { return position % 2 == 0; };
  world.belief = 0.4f;
  world.proposal_seconds = 0.1;
  Decoding run(world);
  run.Until(1000);
  const int64_t first = run.asked();
  run.Until(2000);
  EXPECT_LT(first, 12);
  EXPECT_LE(run.asked() - first, 2);
}

TEST(Controller, ACostlyDrafterThatIsRightIsFoundByWatchingIt) {
  World world;
  world.belief = 0.5f;  // it thinks less of itself than it should
  world.proposal_seconds = 0.05;
  Decoding run(world);
  run.Until(600);
  EXPECT_EQ(run.Step(), DraftState::kDrafting);
  EXPECT_LT(run.loss(), 0);
}

TEST(Controller, DoesNotDraftWhereRowsShareNothing) {
  World world;
  world.cost = [](int64_t rows) { return static_cast<double>(rows); };
  world.right = [](int64_t position) { return position % 4 != 3; };
  Decoding run(world);
  run.Until(1000);
  EXPECT_LT(run.loss(), 0.03 * 1000);
  EXPECT_LT(run.drafted_steps(), 60);
}

TEST(Controller, MeasuresAPlainStepNowAndThenWhileDrafting) {
  Decoding run({});
  run.Until(2000);
  // Nothing but the plain steps tells what a plain step costs now.
  EXPECT_GE(static_cast<int64_t>(run.controller().costs().count(1)),
            run.drafted_steps() / (DraftController::kPlainEvery + 1));
}

TEST(Controller, SpentWhenDraftsWouldPayButHaveCostTooMuch) {
  World world;
  // Believes in itself, is sometimes right, and costs more than is usual.
  world.belief = 0.98f;
  world.cost = [](int64_t rows) { return rows == 1 ? 1.0 : 1.2 * static_cast<double>(rows); };
  std::mt19937 random(5);
  world.right = [&random](int64_t) { return random() % 10 < 6; };
  Decoding run(world);
  bool spent = false;
  while (run.tokens() < 600) spent = run.Step() == DraftState::kSpent || spent;
  EXPECT_TRUE(spent);
  EXPECT_LT(run.loss(), 1 + 0.01 * 600 + 1.4);
}

// A machine that is busy with other things: every step takes one to three times what it should.
TEST(Controller, DraftsThatPayAreMadeAlsoWhereTimesAreNoisy) {
  constexpr int64_t kTokens = 500, kSeeds = 40;
  double seconds = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    World world;
    world.right = [&random](int64_t) { return random() % 100 < 96; };
    world.belief = 0.9f;
    world.proposal_seconds = 0.02;
    world.cost = [&random](int64_t rows) {
      return std::pow(rows, 0.75) * (1 + static_cast<double>(random() % 1000) / 500);
    };
    Decoding run(world);
    run.Until(kTokens);
    EXPECT_GT(run.drafted_steps(), 5) << seed;
    seconds += run.seconds();
  }
  EXPECT_LT(seconds, 0.9 * kSeeds * kTokens * 2) << "plain steps take two on average";
}

TEST(Controller, AStallDuringADraftedStepDoesNotEndDrafting) {
  World world;
  int64_t steps = 0;
  world.cost = [&steps](int64_t rows) { return std::pow(rows, 0.69) * (++steps == 2 ? 50 : 1); };
  Decoding run(world);
  run.Until(200);
  EXPECT_GT(run.drafted_steps(), 15);
}

// One drafted step after the other may be the one that stalls: drafting goes on at once.
TEST(Controller, AStallAnywhereCostsNoMoreThanItself) {
  for (int64_t at = 2; at <= 40; ++at) {
    Decoding smooth({}), run({});
    smooth.Until(300);
    int64_t steps = 0;
    double stalled = 0;
    run.world().cost = [&](int64_t rows) {
      const double usual = std::pow(rows, 0.69);
      const double took = ++steps == at && rows > 1 ? usual * 3 : usual;
      stalled += took - usual;
      return took;
    };
    run.Until(300);
    EXPECT_LT(run.seconds() - stalled, smooth.seconds() * 1.1 + 2) << at;
  }
}

TEST(Controller, StepsThatAreSlowAgainAreBelieved) {
  World world;
  world.cost = [](int64_t rows) { return rows == 1 ? 1.0 : 1.2 * static_cast<double>(rows); };
  world.right = [](int64_t position) { return position % 3 != 2; };
  Decoding run(world);
  run.Until(2000);
  EXPECT_LT(run.loss(), 0.03 * 2000);
}

// Steps stall now and then, drafted ones and plain ones; what drafts bring is between much and nothing.
TEST(Controller, IsNeverMuchSlowerThanPlainDecodingWhereStepsStall) {
  constexpr int64_t kTokens = 3000;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const double power = 0.6 + 0.05 * (seed % 9), right = 0.1 * (seed % 11);
    const uint32_t stalls = seed % 3 == 0 ? 0 : 30;  // of a thousand
    World world;
    world.proposal_seconds = seed % 2 == 0 ? 0 : 0.03;
    world.belief = 0.9f;
    world.right = [&](int64_t) { return static_cast<double>(random() % 1000) < 1000 * right; };
    double stalled = 0, steps = 0;
    world.cost = [&](int64_t rows) {
      const double stall = random() % 1000 < stalls ? 4 : 0;
      stalled += stall;
      ++steps;
      return std::pow(rows, power) + stall;
    };
    Decoding run(world);
    run.Until(kTokens);
    const double plain = kTokens * (1 + stalled / steps);
    EXPECT_GT(plain / run.seconds(), 0.97) << "seed " << seed << ", power " << power << ", right " << right;
  }
}

// Answers as short as 48 tokens, of a program that has drafted nothing before, at what rows cost in k3-nano and in K3.
TEST(Controller, AShortAnswerIsHardlySlowerThanPlainDecoding) {
  constexpr int64_t kTokens = 48;
  for (const double power : {0.69, 0.74, 0.85, 0.88}) {
    for (uint32_t seed = 1; seed <= 200; ++seed) {
      std::mt19937 random(seed);
      World world;
      world.proposal_seconds = seed % 2 == 0 ? 0 : 0.03;
      world.belief = 0.5f + 0.1f * static_cast<float>(seed % 5);
      world.right = [&](int64_t) { return random() % 10 < seed % 11; };
      world.cost = [&](int64_t rows) { return std::pow(rows, power); };
      Decoding run(world);
      run.Until(kTokens);
      EXPECT_GT(static_cast<double>(run.tokens()) / run.seconds(), 0.97) << "seed " << seed << ", power " << power;
    }
  }
}

TEST(Controller, AlwaysMeansAlwaysAndAsWideAsProposed) {
  World world;
  world.right = [](int64_t) { return false; };
  Decoding run(world, {.most = 3, .always = true});
  for (int i = 0; i < 50; ++i) run.Step();
  EXPECT_EQ(run.drafted_steps(), 50);
  EXPECT_EQ(run.widest(), 3);
}

TEST(Controller, NeverMoreThanTheMostThatIsAllowed) {
  Decoding run({}, {.most = 2});
  run.Until(300);
  EXPECT_EQ(run.widest(), 2);
  EXPECT_EQ(Decoding({}, {.most = 0}).controller().Ask(0, true, 1), 0);
}

// The worst that can happen: a drafter that has earned trust and loses it, again and again, at costs that are never
// those of before. Beside the account, what is lost is what a step cost more than was known of it.
TEST(Controller, TheWorstTraceStaysWithinTheBound) {
  constexpr double kMisjudged = 1.5;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    double phase_right = 0, phase_power = 0.69;
    int64_t phase_end = 0;
    World world;
    world.proposal_seconds = seed % 2 == 0 ? 0 : 0.05;
    world.belief = 0.3f + 0.1f * static_cast<float>(seed % 7);
    world.right = [&](int64_t position) {
      if (position >= phase_end) {
        phase_end = position + 5 + static_cast<int64_t>(random() % 60);
        phase_right = random() % 2 == 0 ? 1.0 : 0.0;
        phase_power = 0.6 + 0.01 * static_cast<double>(random() % 30);
      }
      return static_cast<double>(random() % 1000) < 1000 * phase_right;
    };
    world.cost = [&](int64_t rows) { return std::pow(rows, phase_power); };
    Decoding run(world);
    for (int64_t tokens = 64; tokens <= 4096; tokens *= 2) {
      run.Until(tokens);
      const double bound = DraftController::kFirstBalance + DraftController::kShare * static_cast<double>(tokens);
      EXPECT_LT(run.loss(), bound + DraftController::kTrust + kMisjudged)
          << "seed " << seed << ", " << tokens << " tokens";
    }
  }
}

// A drafter that is never asked spends time on every token all the same.
TEST(Observing, IsOnTheAccountAndEndsWhereItWouldNeverRecover) {
  constexpr double kSteady = DraftController::kLooking + DraftController::kShare;
  for (const double share : {0.004, 0.012, 0.05}) {
    SCOPED_TRACE(share);
    DraftController controller(1, {});
    double lost = 0;
    int64_t token = 0;
    for (; token < 1000 && controller.MayObserve(0); ++token) {
      controller.Observed(0, share, 1);
      const TokenId came[] = {7};
      controller.Record({.seconds = 1}, came);
      lost += share;
    }
    if (share < kSteady) {
      EXPECT_EQ(token, 1000) << "no more than what the account gets for every token";
    } else {
      EXPECT_LT(token, 1000);
    }
    if (share < DraftController::kLooking) {
      EXPECT_GT(controller.balance(), DraftController::kFirstBalance) << "drafts are not the poorer for it";
    }
    // One token more at either end: before a plain step is known, and after the account is overdrawn.
    EXPECT_LE(lost, DraftController::kFirstBalance + kSteady * static_cast<double>(token) + 2 * share);
  }
}

TEST(Observing, GoesOnWhereEveryProposalIsChecked) {
  DraftController controller(1, {.always = true});
  const TokenId came[] = {7};
  for (int i = 0; i < 50; ++i) {
    controller.Observed(0, 2, 1);
    controller.Record({.seconds = 1}, came);
  }
  EXPECT_TRUE(controller.MayObserve(0));
}

}  // namespace
}  // namespace deltafin
