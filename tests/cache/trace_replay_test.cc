#include "cache/trace_replay.h"

#include <bit>
#include <map>

#include "cache/cache_fixture.h"
#include "cache/made_traces.h"

namespace deltafin {
namespace {

using test::Steps;

std::unique_ptr<EvictionPolicy> PolicyFor(const ExpertTrace& trace, int64_t slots, const ExpertUsage* prior = nullptr) {
  const ExpertTraceShape& shape = trace.shape();
  return CreateFrequencyPolicy({.slots = slots,
                                .layers = shape.layers,
                                .experts = shape.experts,
                                .experts_per_token = shape.experts_per_token,
                                .prior = prior});
}

// One layer of five experts; one expert a step.
ExpertTrace OneByOne(const std::vector<int32_t>& experts) {
  ExpertTrace trace({.layers = 1, .experts = 5, .experts_per_token = 1, .record_bytes = 1000});
  for (const int32_t expert : experts) {
    trace.AddBatch(0, std::vector<int32_t>{expert});
    trace.EndStep(1);
  }
  return trace;
}

// The least reads by trying every choice of what stays.
uint64_t FewestByTrying(const std::vector<int32_t>& experts, int slots) {
  std::map<uint32_t, uint64_t> reads_by_held = {{0, 0}};
  for (const int32_t expert : experts) {
    std::map<uint32_t, uint64_t> next;
    for (const auto& [held, reads] : reads_by_held) {
      const uint32_t bit = 1u << expert;
      const uint64_t cost = reads + ((held & bit) != 0 ? 0 : 1);
      const uint32_t all = held | bit;
      for (uint32_t kept = 0; kept <= all; ++kept) {
        if ((kept & ~all) != 0 || std::popcount(kept) > slots) continue;
        const auto [it, is_new] = next.emplace(kept, cost);
        if (!is_new) it->second = std::min(it->second, cost);
      }
    }
    reads_by_held = std::move(next);
  }
  uint64_t fewest = ~uint64_t{0};
  for (const auto& [held, reads] : reads_by_held) fewest = std::min(fewest, reads);
  return fewest;
}

TEST(TraceReplay, FewestReadsAreThoseOfTheBestOfAllChoices) {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<int32_t> experts;
    for (int i = 0; i < 14; ++i) experts.push_back(static_cast<int32_t>(random() % 5));
    for (int slots = 1; slots <= 4; ++slots)
      EXPECT_EQ(FewestReads(OneByOne(experts), slots), FewestByTrying(experts, slots)) << slots << " slots";
  }
}

TEST(TraceReplay, AStaticSetReadsItsOwnOnceAndTheOthersEveryTime) {
  const ExpertTrace trace = OneByOne({0, 1, 0, 2, 0, 1, 3});
  EXPECT_EQ(StaticSetReads(trace, 1, false), 1u + 4u);
  EXPECT_EQ(StaticSetReads(trace, 2, false), 2u + 2u);
  EXPECT_EQ(StaticSetReads(trace, 2, true), 2u);
  EXPECT_EQ(StaticSetReads(trace, 5, false), 4u);  // the fifth was never wanted
  EXPECT_EQ(StaticSetReads(trace, 5, true), 0u);
}

TEST(TraceReplay, WarmExpertsAreNotRead) {
  const ExpertTrace trace = OneByOne({4, 3, 4});
  const std::vector<ExpertKey> warm = {{0, 4}, {0, 1}};
  EXPECT_EQ(ReplayReads(trace, 2, *CreateLayerLruPolicy(2, 1), warm), 1u);
  EXPECT_EQ(FewestReads(trace, 2, warm), 1u);
  EXPECT_EQ(FewestReads(trace, 2), 2u);
}

TEST(TraceReplay, CountsHowOftenStepsWantedAnExpert) {
  const ExpertUsage usage = CountUsage(OneByOne({0, 1, 0, 2, 0}));
  EXPECT_EQ(usage.Count({0, 0}), 3u);
  EXPECT_EQ(usage.Count({0, 4}), 0u);
  EXPECT_EQ(usage.total(), 5u);
}

// The cache itself, reading from a source, needs just what replay says it does.
class ReplayAgainstCache : public test::ExpertCacheTest {};

TEST_F(ReplayAgainstCache, ReadsAreTheSame) {
  const ExpertTrace trace = test::Make({.name = "Short", .rows = Steps({{4, 2}, {1, 40}, {3, 2}, {1, 40}}), .seed = 8});
  for (const int64_t slots : {16, 40, 100, 160, 288}) {
    // One thread and one read at a time: they end in the order in which they were asked for, as replay has it.
    source_ = std::make_unique<test::FakeExpertSource>(
        test::FakeExpertOptions{.threads = 1, .max_delay_us = 0, .max_started = 1});
    Result<std::unique_ptr<ExpertCache>> cache =
        ExpertCache::Create(*source_, {.slots = slots, .max_batch = 96, .most_in_transit = ExpertCache::Transit(16)},
                            PolicyFor(trace, slots), clock_);
    ASSERT_TRUE(cache) << cache.error().message();
    cache_ = std::move(*cache);
    for (const ExpertTrace::Batch& batch : trace.batches()) {
      const std::span<const int32_t> experts = trace.ExpertsOf(batch);
      cache_->Begin(batch.layer, experts, trace.RowsOf(batch));
      Drain(batch.layer, {experts.begin(), experts.end()});
    }
    EXPECT_EQ(static_cast<uint64_t>(source_->fetches()), ReplayReads(trace, slots, *PolicyFor(trace, slots))) << slots;
    cache_.reset();
  }
}

std::vector<int64_t> SlotsFor(const ExpertTrace& trace) {
  const auto all = static_cast<int64_t>(LayersOf(trace).size()) * trace.shape().experts;
  std::vector<int64_t> slots = {trace.shape().experts_per_token, trace.shape().experts_per_token + 3};
  for (const int64_t percent : {3, 5, 8, 12, 17, 25, 35, 45, 55, 65, 75, 85, 95, 100})
    slots.push_back(all * percent / 100);
  std::sort(slots.begin(), slots.end());
  return slots;
}

// The best static set knows the whole trace, and reads through no slot of its own. Few slots lose to that what is on
// its way, as much as a layer's experts (ExpertCache::Transit); and where nothing but chance makes an expert popular,
// chance cannot be foreseen.
double MostRatio(const test::MadeTrace& made, int64_t slots) {
  const int64_t transit = ExpertCache::Transit(made.shape.experts_per_token);
  if (slots < transit * 3 / 2) return 1.35;
  return slots < 3 * transit ? std::max(1.2, made.most_ratio) : made.most_ratio;
}

class Replay : public testing::TestWithParam<test::MadeTrace> {};

TEST_P(Replay, ReadsLittleMoreThanTheBestStaticSetAndNotLessThanPossible) {
  const ExpertTrace trace = test::Make(GetParam());
  for (const int64_t slots : SlotsFor(trace)) {
    const uint64_t reads = ReplayReads(trace, slots, *PolicyFor(trace, slots));
    const uint64_t best = StaticSetReads(trace, slots, false);
    RecordProperty("percent_" + std::to_string(slots), static_cast<int>(100 * reads / best));
    EXPECT_LE(static_cast<double>(reads), MostRatio(GetParam(), slots) * static_cast<double>(best))
        << slots << " slots";
    EXPECT_GE(reads, FewestReads(trace, slots)) << slots << " slots";
    EXPECT_EQ(ReplayReads(trace, slots, *PolicyFor(trace, slots)), reads) << "not deterministic";
  }
}

TEST_P(Replay, MoreSlotsNeverReadMore) {
  const ExpertTrace trace = test::Make(GetParam());
  uint64_t fewer_slots = ~uint64_t{0};
  for (const int64_t slots : SlotsFor(trace)) {
    const uint64_t reads = ReplayReads(trace, slots, *PolicyFor(trace, slots));
    // Not a stack algorithm, so single reads may go the other way: by half a percent.
    EXPECT_LE(static_cast<double>(reads), 1.005 * static_cast<double>(fewer_slots)) << slots << " slots";
    fewer_slots = reads;
  }
  EXPECT_EQ(fewer_slots, StaticSetReads(trace, SlotsFor(trace).back(), false)) << "all fit: each is read once";
}

TEST_P(Replay, AWarmStartReadsLessAndLittleMoreThanTheBestSetThatWasLoadedBefore) {
  const ExpertTrace trace = test::Make(GetParam());
  const ExpertUsage usage = CountUsage(trace);
  for (const int64_t slots : SlotsFor(trace)) {
    const std::vector<ExpertKey> warm = usage.MostUsed(LayersOf(trace), slots);
    const uint64_t reads = ReplayReads(trace, slots, *PolicyFor(trace, slots, &usage), warm);
    EXPECT_LE(reads, ReplayReads(trace, slots, *PolicyFor(trace, slots))) << slots << " slots";
    // Where next to nothing is missing, a few reads are a large ratio.
    const double most = MostRatio(GetParam(), slots) * static_cast<double>(StaticSetReads(trace, slots, true)) +
                        0.015 * static_cast<double>(trace.uses());
    EXPECT_LE(static_cast<double>(reads), most) << slots << " slots";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Replay, testing::ValuesIn(test::MadeTraces()),
                         [](const testing::TestParamInfo<test::MadeTrace>& info) { return info.param.name; });

}  // namespace
}  // namespace deltafin
