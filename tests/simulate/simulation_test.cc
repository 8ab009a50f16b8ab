// Steps whose times can be computed by hand.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <set>

#include "k3_shape.h"
#include "simulate/runs.h"

namespace deltafin::simulate {
namespace {

// Every token wants the same experts of every layer.
class FixedRouting final : public Routing {
 public:
  FixedRouting(size_t layers, std::vector<std::vector<int32_t>> turns) : layers_(layers), turns_(std::move(turns)) {}
  void Next(int64_t, double, StepExperts* out) override { out->assign(layers_, turns_[at_++ % turns_.size()]); }
  double Rank(int32_t, int32_t expert) const override { return expert / 8.0; }

 private:
  size_t layers_, at_ = 0;
  std::vector<std::vector<int32_t>> turns_;
};

Setup SetupOf(size_t layers, std::vector<double> rates) {
  Setup setup;
  setup.shape = test::SmallShape(layers);
  for (const double rate : rates) setup.machine.drives.push_back({.bytes_per_second = rate, .first_byte_seconds = 0});
  setup.machine.memory_bytes_per_second = 1e9;
  setup.machine.flops_per_second = 1e12;
  return setup;
}

TEST(Simulation, WithoutACacheEveryExpertIsReadByAllDrivesTogether) {
  FixedRouting routing(3, {{0, 1}});
  Simulation simulation(SetupOf(3, {60e6, 40e6}), routing);
  simulation.Step(1);
  simulation.Step(1);
  EXPECT_NEAR(simulation.totals().seconds, 2 * 3 * 2e6 / 100e6, 1e-6);
  EXPECT_EQ(simulation.totals().read, 12u);
  EXPECT_EQ(simulation.totals().found, 0u);
  EXPECT_NEAR(simulation.totals().expert_wait, simulation.totals().seconds, 1e-6);
  EXPECT_NEAR(simulation.drives().bytes_read(0), 0.6 * 12e6, 1);
}

TEST(Simulation, MirroredRecordsWaitForTheSlowestDriveOfEachLayer) {
  FixedRouting routing(2, {{0, 1}});
  auto setup = SetupOf(2, {60e6, 40e6});
  setup.layout = {.kind = LayoutKind::kMirrored};
  Simulation simulation(setup, routing);
  simulation.Step(1);
  EXPECT_NEAR(simulation.totals().seconds, 2 * 1e6 / 40e6, 1e-6);  // one record each
  setup.layout = {.kind = LayoutKind::kShards};
  Simulation shards(setup, routing);
  shards.Step(1);
  EXPECT_NEAR(shards.totals().seconds, 2 * 2e6 / 60e6, 1e-6);
  EXPECT_EQ(shards.drives().bytes_read(1), 0);
}

TEST(Simulation, ExpertsThatStayAreNotReadAgain) {
  for (const CachePolicy policy : {CachePolicy::kFrequency, CachePolicy::kLayerLru, CachePolicy::kLru}) {
    FixedRouting routing(2, {{0, 1}, {0, 2}});
    auto setup = SetupOf(2, {100e6});
    setup.slots = 6;  // all that is ever wanted
    setup.policy = policy;
    Simulation simulation(setup, routing);
    for (int i = 0; i < 10; ++i) simulation.Step(1);
    EXPECT_EQ(simulation.totals().read, 6u) << ToString(policy);
    EXPECT_EQ(simulation.totals().found, 34u);
  }
}

TEST(Simulation, LruOverAllLayersFindsNothingInLessThanAToken) {
  FixedRouting routing(4, {{0, 1}});
  auto setup = SetupOf(4, {100e6});
  setup.slots = 6;  // a token wants 8
  setup.policy = CachePolicy::kLru;
  Simulation simulation(setup, routing);
  for (int i = 0; i < 5; ++i) simulation.Step(1);
  EXPECT_EQ(simulation.totals().found, 0u);
}

TEST(Simulation, ReadingHidesBehindComputingThatDoesNotNeedIt) {
  FixedRouting routing(1, {{0, 1}});
  auto setup = SetupOf(1, {100e6});
  setup.shape.layers[0].shared_bytes = 50e6;  // 50 ms
  setup.engine.dense_share = 1;
  setup.engine.arithmetic_share = 1;
  Simulation simulation(setup, routing);
  simulation.Step(1);
  EXPECT_NEAR(simulation.totals().seconds, 0.05, 1e-6);
  EXPECT_NEAR(simulation.totals().expert_wait, 0, 1e-9);
}

TEST(Simulation, RightGuessesAreReadBeforeTheirLayer) {
  FixedRouting routing(2, {{0, 1}});
  auto setup = SetupOf(2, {100e6});
  setup.engine.layer_seconds = 0.02;  // as long as a layer's reads
  Simulation without(setup, routing);
  without.Step(1);
  EXPECT_NEAR(without.totals().seconds, 2 * 0.04, 1e-6);
  setup.engine.ahead_layers = 1;
  setup.engine.named = setup.engine.right = 1;
  Simulation with(setup, routing);
  with.Step(1);
  EXPECT_NEAR(with.totals().seconds, 2 * 0.02, 1e-6);
  EXPECT_EQ(with.totals().read_ahead, 4u);
  EXPECT_EQ(with.totals().in_vain, 0u);
}

TEST(Simulation, DenseWeightsThatDoNotStayAreReadForEveryStep) {
  FixedRouting routing(4, {{0, 1}});
  auto setup = SetupOf(4, {100e6});
  for (LayerShape& layer : setup.shape.layers) layer = {.router_bytes = 1e6};
  setup.shape.head_bytes = 1e6;
  setup.resident_units = 0;
  FixedRouting none(4, {{}});
  Simulation simulation(setup, none);
  for (int i = 0; i < 10; ++i) simulation.Step(1);
  EXPECT_NEAR(simulation.totals().seconds, 10 * 5e6 / 100e6, 0.021);  // two units ahead
  EXPECT_NEAR(simulation.totals().dense_wait, simulation.totals().seconds, 1e-6);
}

TEST(Simulation, TheSameSetupTakesTheSameTime) {
  const auto run = [](uint64_t seed) {
    auto setup = SetupOf(5, {60e6, 40e6, 10e6});
    setup.slots = 12;
    setup.seed = seed;
    setup.engine.ahead_layers = 1;
    setup.engine.named = 0.5;
    setup.engine.right = 0.7;
    setup.engine.layer_seconds = 0.003;
    const auto routing = MakeRouting(setup.shape, K3Statistics(), seed);
    Simulation simulation(setup, *routing);
    return RunDecode(simulation, 30, {}, seed).totals.seconds;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Drafts, TheChanceGivesTheAskedPart) {
  DraftHabits habits{.weights = {0, 2, 10, 4, 5, 0, 3, 1, 18}, .chance = 0};
  EXPECT_NEAR(habits.mean_drafts(), 223.0 / 43, 1e-9);
  habits.chance = ChanceFor(habits, 0.64);
  EXPECT_NEAR(habits.mean_right() / habits.mean_drafts(), 0.64, 1e-6);
}

TEST(Drafts, OnlyDraftsThatPayAreMade) {
  EXPECT_EQ(BestHabits(0.3, 0.71, 7).mean_drafts(), 0);  // 1.3 tokens for the reading of 1.64
  EXPECT_EQ(BestHabits(0.95, 0.71, 7).mean_drafts(), 7);
  EXPECT_EQ(BestHabits(0.95, 0.71, 0).mean_drafts(), 0);
}

}  // namespace
}  // namespace deltafin::simulate
