// What the cache does with experts that are read before anybody asked for them.
#include "cache/cache_fixture.h"

namespace deltafin {
namespace {

using test::Range;

class PrefetchTest : public test::ExpertCacheTest {
 protected:
  uint64_t bytes(int experts) const { return static_cast<uint64_t>(experts) * source_->record_bytes(); }
};

TEST_F(PrefetchTest, WhatWasPrefetchedIsNotReadAgain) {
  Make(12, {}, 64, 4);
  cache_->Prefetch(1, Range(0, 3));
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->priority({1, 0}), IoPriority::kGuess);
  Run(1, Range(0, 4));
  EXPECT_EQ(source_->fetches(), 4);
  const ExpertCacheCounters c = cache_->counters();
  EXPECT_EQ(c.prefetch_useful_bytes, bytes(3));
  EXPECT_EQ(c.prefetch_late_bytes, 0u);
  EXPECT_EQ(c.prefetch_wasted_bytes, 0u);
  EXPECT_EQ(c.demand_bytes, bytes(1));
  EXPECT_EQ(c.hits, 3u);
}

TEST_F(PrefetchTest, ABatchJoinsAPrefetchOnItsWayAndMakesItUrgent) {
  Make(12, {.max_started = 1}, 64, 4);
  source_->Hold();
  cache_->Prefetch(1, Range(0, 3));
  cache_->Begin(1, std::vector<int32_t>{1, 2});
  EXPECT_EQ(source_->fetches(), 3);
  EXPECT_EQ(source_->priority({1, 1}), IoPriority::kDemand);
  EXPECT_EQ(source_->priority({1, 2}), IoPriority::kDemand);
  source_->Release();
  Drain(1, {1, 2});
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->fetches({1, 1}) + source_->fetches({1, 2}), 2);
  EXPECT_EQ(cache_->counters().prefetch_useful_bytes, bytes(2));
  EXPECT_EQ(cache_->counters().prefetch_late_bytes, bytes(2));
}

TEST_F(PrefetchTest, WrongGuessesThatHaveNotBegunNeverDo) {
  Make(12, {.threads = 1, .max_started = 1}, 64, 4);
  source_->Hold();
  cache_->Prefetch(1, Range(0, 4));  // the first begins
  cache_->Begin(1, std::vector<int32_t>{9});
  source_->Release();
  Drain(1, {9});
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->cancelled(), 3);
  EXPECT_EQ(cache_->counters().prefetch_wasted_bytes, bytes(1));
  EXPECT_EQ(cache_->counters().prefetch_useful_bytes, 0u);
  EXPECT_EQ(cache_->resident(), 2);
}

TEST_F(PrefetchTest, AWrongGuessThatCameIsWastedAndStays) {
  Make(12, {}, 64, 4);
  cache_->Prefetch(1, Range(0, 2));
  source_->WaitUntilIdle();
  Run(1, {5});
  EXPECT_EQ(cache_->counters().prefetch_wasted_bytes, bytes(2));
  Run(1, {0, 1});
  EXPECT_EQ(source_->fetches(), 3) << "it is in the cache like any other expert";
  EXPECT_EQ(cache_->counters().prefetch_useful_bytes, 0u) << "and counted once";
}

TEST_F(PrefetchTest, GuessesForALaterLayerOutlastTheBatchesBefore) {
  Make(8, {}, 64, 2);
  cache_->Prefetch(3, Range(0, 2));
  source_->WaitUntilIdle();
  for (int32_t layer = 0; layer < 3; ++layer) Run(layer, Range(0, 20));
  const int before = source_->fetches();
  Run(3, Range(0, 2));
  EXPECT_EQ(source_->fetches(), before);
}

TEST_F(PrefetchTest, NoMoreThanItsSlotsAndNothingThatIsThere) {
  Make(12, {}, 64, 3);
  Run(1, {0, 1});
  cache_->Prefetch(1, Range(0, 12));
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->fetches(), 5);
  EXPECT_TRUE(cache_->Keep({1, 4}));
  EXPECT_FALSE(cache_->Keep({1, 5}));
  EXPECT_FALSE(cache_->Keep({2, 4}));
}

TEST_F(PrefetchTest, ABatchRunsWhilePrefetchesHoldTheirSlots) {
  Make(4, {.threads = 3}, 64, 2);
  source_->Hold();
  cache_->Prefetch(1, Range(0, 2));
  cache_->Begin(0, Range(0, 10));
  source_->Release();
  Drain(0, Range(0, 10));
}

TEST_F(PrefetchTest, AGuessTakesNoSlotThatTheOpenBatchWaitsFor) {
  Make(4, {}, 64, 2);
  source_->Hold();
  cache_->Begin(0, Range(0, 6));
  cache_->Prefetch(1, Range(0, 2));
  EXPECT_EQ(source_->fetches(), 4);
  source_->Release();
  Drain(0, Range(0, 6));
  EXPECT_EQ(source_->fetches({1, 0}), 0);
}

TEST_F(PrefetchTest, WhatIsKeptIsNotEvictedForAGuess) {
  Make(6, {}, 64, 2);
  Run(1, Range(0, 6));
  EXPECT_TRUE(cache_->Keep({1, 0}));
  cache_->Prefetch(1, std::vector<int32_t>{8});
  source_->WaitUntilIdle();
  EXPECT_TRUE(cache_->Keep({1, 0}));
  EXPECT_FALSE(cache_->Keep({1, 1})) << "the oldest of the others went";
}

TEST_F(PrefetchTest, UnwantedGuessesThatDoNotComeBackTakeNoMoreSlots) {
  Make(10, {.threads = 1}, 64, 3);
  for (int32_t layer = 1; layer < 4; ++layer) {
    source_->Hold();
    cache_->Prefetch(layer, Range(0, 3));
    cache_->Begin(layer, std::vector<int32_t>{9});
    if (layer == 1) {
      EXPECT_EQ(source_->fetches(), 4);
      cache_->Prefetch(layer + 1, Range(0, 3));
      EXPECT_EQ(source_->fetches(), 4) << "three are still being read";
    }
    source_->Release();
    Drain(layer, {9});
    source_->WaitUntilIdle();
  }
}

TEST_F(PrefetchTest, ACancelledGuessThatIsStillOutIsReadAgainForWhoJoinsIt) {
  Make(12, {.threads = 1, .max_started = 1}, 64, 4);
  source_->Hold();
  cache_->Prefetch(1, Range(0, 2));           // the first begins, the second waits
  cache_->Begin(1, std::vector<int32_t>{5});  // cancels the second
  cache_->Abandon();
  cache_->Begin(1, std::vector<int32_t>{1});  // joins it
  source_->Release();
  Drain(1, {1});
  EXPECT_EQ(source_->fetches({1, 1}), 2);
}

TEST_F(PrefetchTest, OfAFailedGuessNobodyHears) {
  Make(12, {}, 64, 4);
  source_->Fail({1, 0}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Prefetch(1, Range(0, 2));
  source_->WaitUntilIdle();
  Run(1, {0, 1});
  EXPECT_EQ(source_->fetches({1, 0}), 2);
}

TEST_F(PrefetchTest, AGuessThatFailsUnderTheBatchThatJoinedItIsReadAgain) {
  Make(12, {}, 64, 4);
  source_->Hold();
  source_->Fail({1, 0}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Prefetch(1, {{0}});
  cache_->Begin(1, std::vector<int32_t>{0});
  source_->Release();
  Drain(1, std::vector<int32_t>{0});
  EXPECT_EQ(source_->fetches(), 2);
}

TEST_F(PrefetchTest, GivingUpABatchGivesUpItsPrefetches) {
  Make(12, {.threads = 1, .max_started = 1}, 64, 4);
  source_->Hold();
  cache_->Prefetch(1, Range(0, 4));
  cache_->Begin(0, Range(0, 2));
  cache_->Abandon();
  source_->Release();
  source_->WaitUntilIdle();
  EXPECT_EQ(source_->cancelled(), 5) << "all but the one that had begun";
  Run(1, Range(0, 4));
}

TEST_F(PrefetchTest, GuessesThatHangLeaveBatchesTheirSlots) {
  Make(10, {}, 64, 3);
  for (int32_t layer = 1; layer < 20; ++layer) {
    for (int32_t e = 0; e < 3; ++e) source_->Fail({layer, e}, Error(ErrorCode::kDeadline, "hangs"));
    cache_->Prefetch(layer, Range(0, 3));
    source_->WaitUntilIdle();
    Run(layer, Range(10, 7));
  }
  EXPECT_EQ(cache_->hung(), 3);
  source_->EndHungReads();
}

TEST_F(PrefetchTest, AGuessBehindAHungDriveIsReadFromTheCopyWhenItIsWanted) {
  Make(12, {}, 64, 4);
  source_->HaveCopies();
  source_->Fail({1, 0}, Error(ErrorCode::kDeadline, "hangs"));
  cache_->Prefetch(1, Range(0, 2));
  source_->WaitUntilIdle();
  EXPECT_EQ(cache_->hung(), 1);
  Run(1, {0, 1});
  source_->EndHungReads();
  EXPECT_EQ(cache_->hung(), 0);
}

}  // namespace
}  // namespace deltafin
