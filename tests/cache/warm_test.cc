// What the cache does when it is told which experts will probably be wanted in this run.
#include <algorithm>
#include <chrono>
#include <thread>

#include "cache/cache_fixture.h"

namespace deltafin {
namespace {

using test::Range;

class WarmTest : public test::ExpertCacheTest {
 protected:
  uint64_t bytes(int experts) const { return static_cast<uint64_t>(experts) * source_->record_bytes(); }
  static std::vector<ExpertKey> Keys(int32_t layer, const std::vector<int32_t>& experts) {
    std::vector<ExpertKey> keys;
    for (const int32_t expert : experts) keys.push_back({layer, expert});
    return keys;
  }
  // Warm reads follow each other on other threads, with a moment of none in between.
  void WaitForResident(int64_t count) {
    while (cache_->resident() < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    source_->WaitUntilIdle();
  }
};

TEST_F(WarmTest, FillsFreeSlotsInOrderAtBackgroundPriorityAndStops) {
  Make(6);
  cache_->Warm(Keys(2, {9, 3, 7, 1, 5, 8, 0, 2}), 2);
  WaitForResident(6);
  EXPECT_EQ(source_->fetches(), 6);
  for (const int32_t expert : {9, 3, 7, 1, 5, 8}) {
    EXPECT_EQ(source_->fetches({2, expert}), 1) << expert;
    EXPECT_EQ(source_->priority({2, expert}), IoPriority::kBackground);
  }
  EXPECT_EQ(cache_->counters().warm_bytes, bytes(6));
  EXPECT_EQ(cache_->counters().demand_bytes, 0u);
  EXPECT_EQ(cache_->counters().evictions, 0u);
  Run(2, {3, 8, 9});
  EXPECT_EQ(source_->fetches(), 6);
  EXPECT_EQ(cache_->counters().hits, 3u);
}

TEST_F(WarmTest, ReadsNoMoreAtOnceThanAllowed) {
  Make(20, {.threads = 4});
  source_->Hold();
  cache_->Warm(Keys(0, Range(0, 12)), 3);
  EXPECT_EQ(source_->fetches(), 3);
  source_->Release();
  WaitForResident(12);
  EXPECT_EQ(cache_->counters().warm_bytes, bytes(12));
}

TEST_F(WarmTest, ABatchJoinsAWarmReadOnItsWayAndMakesItUrgent) {
  Make(12, {.max_started = 1});
  source_->Hold();
  cache_->Warm(Keys(1, {4, 5, 6}), 2);
  cache_->Begin(1, std::vector<int32_t>{5, 7});
  EXPECT_EQ(source_->priority({1, 5}), IoPriority::kDemand);
  EXPECT_EQ(source_->priority({1, 4}), IoPriority::kBackground);
  source_->Release();
  Drain(1, {5, 7});
  WaitForResident(4);
  EXPECT_EQ(source_->fetches({1, 5}), 1);
  EXPECT_EQ(cache_->counters().demand_bytes, bytes(1));
  EXPECT_EQ(cache_->counters().warm_bytes, bytes(3));
}

TEST_F(WarmTest, WhatABatchReadMeanwhileIsNotReadAgain) {
  Make(12);
  Run(3, {1, 2});
  cache_->Warm(Keys(3, {2, 1, 0}), 2);
  WaitForResident(3);
  EXPECT_EQ(source_->fetches(), 3);
  EXPECT_EQ(cache_->counters().warm_bytes, bytes(1));
}

TEST_F(WarmTest, BatchesHaveAllOtherSlotsWhileWarmReadsHang) {
  Make(8);
  source_->Hold();
  cache_->Warm(Keys(5, Range(0, 8)), 2);
  cache_->Begin(1, Range(0, 6));
  EXPECT_EQ(source_->fetches(), 8);  // two warm ones, and six for the batch at once
  source_->Release();
  Drain(1, Range(0, 6));
}

TEST_F(WarmTest, AFailureEndsWarmingAndNothingElse) {
  Make(12, {.threads = 1});
  source_->Fail({0, 1}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Warm(Keys(0, Range(0, 8)), 1);
  WaitForResident(1);
  while (source_->fetches() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->fetches(), 2);
  Run(0, {1, 2});
}

TEST_F(WarmTest, StopWarmingCancelsWhatHasNotBegun) {
  Make(12, {.threads = 1, .max_started = 1});
  source_->Hold();
  cache_->Warm(Keys(0, Range(0, 8)), 3);
  cache_->StopWarming();
  source_->Release();
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->fetches(), 3);
  EXPECT_EQ(source_->cancelled(), 2);
  Run(0, Range(0, 4));
}

TEST_F(WarmTest, BatchesAndWarmReadsOfTheSameExpertsDoNotMeet) {
  std::vector<int32_t> from_the_end = Range(0, 64);
  std::reverse(from_the_end.begin(), from_the_end.end());
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    as_engines_do_ = seed % 2 == 0;
    Make(70, {.seed = seed, .threads = 3, .max_delay_us = 0});
    cache_->Warm(Keys(0, from_the_end), 4);
    for (const int32_t first : {0, 20, 5}) Run(0, Range(first, 40));
    EXPECT_EQ(source_->most_at_once_per_key(), 1);
    EXPECT_EQ(source_->writes_into_pinned(), 0);
  }
}

TEST_F(WarmTest, ACacheMayDieWhileItWarms) {
  for (int round = 0; round < 20; ++round) {
    Make(40, {.seed = static_cast<uint64_t>(round + 1), .threads = 3, .max_delay_us = 50});
    cache_->Warm(Keys(0, Range(0, 64)), 4);
    if (round % 2 == 0) Run(0, Range(0, 5));
    cache_.reset();
  }
}

TEST_F(WarmTest, WithoutSlotsToSpareNothingIsRead) {
  Make(4);
  cache_->Warm(Keys(0, Range(0, 8)), 0);
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->fetches(), 0);
}

}  // namespace
}  // namespace deltafin
