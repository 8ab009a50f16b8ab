// A warm start: what earlier runs wanted is there before it is asked for, and is counted by itself.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cache/expert_trace.h"
#include "support/engine_runs.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

const std::vector<TokenId> kPrompt = {398, 427, 272, 1688, 263};

EngineOptions Options(const std::string& state, bool warm_start) {
  return {.model = test::NanoFolder(), .warm_start = warm_start, .state_dir = state};
}

// What the prompt took, after warming has come to rest.
EngineCounters FeedOnce(const EngineOptions& options) {
  test::OpenedEngine engine(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message();
  uint64_t before = ~uint64_t{0};
  while (engine->counters().io.reads != before) {
    before = engine->counters().io.reads;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  Result<Session> session = engine->NewSession();
  EXPECT_TRUE(engine->Feed(*session, kPrompt, {}, {}));
  return engine->counters();
}

TEST(WarmStart, WhatEarlierRunsWantedIsThere) {
  const test::TempFolder state;
  const EngineCounters first = FeedOnce(Options(state.path(), false));
  EXPECT_EQ(first.expert_bytes_warm, 0u);
  EXPECT_GT(first.expert_bytes_demand, 0u);
  // All experts fit: all are read, those that were never wanted as well.
  const EngineCounters second = FeedOnce(Options(state.path(), true));
  EXPECT_EQ(second.expert_bytes_warm, 8u * 96u * second.record_bytes);
  EXPECT_EQ(second.expert_bytes_demand, 0u);
  EXPECT_EQ(second.cache_misses, 0u);
  EXPECT_EQ(second.experts_distinct, first.experts_distinct);
}

TEST(WarmStart, ReadsOnlyWhatWasWantedWhereNotAllFit) {
  const test::TempFolder state;
  const EngineCounters first = FeedOnce(Options(state.path(), false));
  EngineOptions options = Options(state.path(), true);
  options.expert_cache = 500 * (first.record_bytes + 4096);
  options.prefetch = false;
  const EngineCounters second = FeedOnce(options);
  EXPECT_EQ(second.expert_bytes_warm, first.expert_bytes_demand + first.expert_bytes_prefetch_useful);
  EXPECT_EQ(second.expert_bytes_demand, 0u);
}

TEST(WarmStart, WithoutAStateFolderThereIsNone) {
  const EngineCounters run = FeedOnce(Options("", true));
  EXPECT_EQ(run.expert_bytes_warm, 0u);
}

TEST(ExpertTraceOfARun, HasEveryStepThatWasFinished) {
  const test::TempFolder folder;
  EngineOptions options = Options("", false);
  options.expert_trace = folder.path() + "/trace";
  options.chunk = 3;
  {
    test::OpenedEngine engine(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message();
    Result<Session> session = engine->NewSession();
    ASSERT_TRUE(engine->Feed(*session, kPrompt, {}, {}));
    std::atomic<bool> stop{true};
    EXPECT_FALSE(engine->Feed(*session, kPrompt, {}, CancelToken(&stop)));
    const Result<ExpertTrace> trace = ExpertTrace::Load(options.expert_trace);
    ASSERT_TRUE(trace) << trace.error().message();
    EXPECT_EQ(trace->shape(), (ExpertTraceShape{9, 96, 8, engine->counters().record_bytes}));
    ASSERT_EQ(trace->steps().size(), 2u);
    EXPECT_EQ(trace->steps()[0].rows, 3);
    EXPECT_EQ(trace->steps()[1].rows, 2);
    EXPECT_EQ(trace->batches().size(), 16u);  // the first layer has no routed experts
    EXPECT_LE(trace->uses(), engine->counters().experts_distinct);
  }
}

}  // namespace
}  // namespace deltafin
