#include "cache/expert_cache.h"

#include <gmock/gmock.h>

#include <chrono>
#include <set>
#include <thread>

#include "cache/cache_fixture.h"

namespace deltafin {
namespace {

using test::ExpertCacheTest;
using test::Range;
using testing::HasSubstr;

TEST_F(ExpertCacheTest, TheFloorIsTheExpertsOfOneToken) { EXPECT_EQ(ExpertCache::Floor(16), 16); }

TEST_F(ExpertCacheTest, ASlotHoldsARecordAnywhereInWholePages) {
  const test::FakeExpertSource source({});
  EXPECT_EQ(ExpertCache::SlotBytes(source) % 4096, 0u);
  EXPECT_GE(ExpertCache::SlotBytes(source), source.record_bytes() + source.slot_alignment() - 1);
}

TEST_F(ExpertCacheTest, SizesThatMakeNoSenseAreRefused) {
  test::FakeExpertSource source({});
  const auto create = [&](int64_t slots, int64_t max_batch) {
    return ExpertCache::Create(source, {.slots = slots, .max_batch = max_batch}, CreateLayerLruPolicy(4, 1), clock_);
  };
  EXPECT_EQ(create(0, 4).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(4, 0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(create(4, 4));
}

TEST_F(ExpertCacheTest, AMissIsReadAndAHitIsNot) {
  Make(4);
  Run(1, {2, 5});
  Run(1, {2, 5});
  Run(2, {2, 5});
  EXPECT_EQ(source_->fetches(), 4);
  EXPECT_EQ(cache_->counters().misses, 4u);
  EXPECT_EQ(cache_->counters().hits, 2u);
  EXPECT_EQ(cache_->counters().demand_bytes, 4 * source_->record_bytes());
  EXPECT_EQ(cache_->counters().evictions, 0u);
  EXPECT_EQ(cache_->resident(), 4);
  EXPECT_EQ(cache_->slots(), 4);
}

TEST_F(ExpertCacheTest, OnlyReadsThatSucceededCountAsBytes) {
  Make(4);
  source_->Hold();
  source_->Fail({0, 1}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Begin(0, Range(0, 3));
  EXPECT_EQ(cache_->counters().demand_bytes, 0u) << "no read has ended";
  source_->Release();
  source_->WaitUntilIdle();
  cache_->Abandon();
  EXPECT_EQ(cache_->counters().demand_bytes, 2 * source_->record_bytes());
}

TEST_F(ExpertCacheTest, TheLeastRecentlyUsedLeaves) {
  Make(3);
  Run(0, {1});
  Run(0, {2});
  Run(0, {3});
  Run(0, {1});
  Run(0, {4});  // evicts 2
  Run(0, {1, 3, 4});
  EXPECT_EQ(source_->fetches(), 4);
  Run(0, {2});
  EXPECT_EQ(source_->fetches({0, 2}), 2);
  EXPECT_EQ(cache_->counters().evictions, 2u);
}

TEST_F(ExpertCacheTest, AnEmptyBatchIsFinished) {
  Make(2);
  cache_->Begin(0, {});
  Run(0, {1});
}

TEST_F(ExpertCacheTest, BeginDoesNotWaitAndStartsTheReads) {
  Make(4);
  source_->Hold();
  cache_->Begin(0, Range(0, 4));
  EXPECT_EQ(source_->fetches(), 4);
  source_->Release();
  Drain(0, Range(0, 4));
}

TEST_F(ExpertCacheTest, WhatIsInMemoryComesBeforeWhatIsBeingRead) {
  Make(4);
  Run(0, {1});
  source_->Hold();
  const std::vector<int32_t> experts = {0, 1};
  cache_->Begin(0, experts);
  {
    const auto ready = cache_->Next({});
    ASSERT_TRUE(ready);
    EXPECT_EQ(ready->position, 1);
  }
  source_->Release();
  const auto ready = cache_->Next({});
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->position, 0);
}

TEST_F(ExpertCacheTest, ABatchLargerThanTheCacheIsServed) {
  Make(3);
  Run(0, Range(0, 60));
  EXPECT_EQ(source_->fetches(), 60);
}

TEST_F(ExpertCacheTest, OneSlotServesAnyBatch) {
  Make(1);
  Run(0, Range(0, 30));
  Run(1, Range(10, 30));
  EXPECT_EQ(source_->fetches(), 60);
}

TEST_F(ExpertCacheTest, TheMissesOfABatchDoNotEvictItsOwnHits) {
  Make(4);
  Run(0, {20, 30, 40});
  // One free slot, six misses, three hits that come after them.
  Run(0, {1, 2, 3, 4, 5, 6, 20, 30, 40});
  EXPECT_EQ(source_->fetches({0, 20}), 1);
  EXPECT_EQ(source_->fetches({0, 30}), 1);
  EXPECT_EQ(source_->fetches({0, 40}), 1);
  EXPECT_EQ(source_->fetches(), 9);
}

// Takes a batch in ascending order.
class AscendingBatch : public ExpertCacheTest {
 protected:
  void RunAscending(int32_t layer, const std::vector<int32_t>& experts) {
    cache_->Begin(layer, experts, {}, ExpertOrder::kAscending);
    for (size_t i = 0; i < experts.size(); ++i) {
      const Result<ExpertCache::Ready> ready = cache_->Next({});
      ASSERT_TRUE(ready) << ready.error().message();
      ASSERT_EQ(ready->position, static_cast<int32_t>(i));
      ASSERT_TRUE(source_->Holds(ready->pin.weights(), {layer, experts[i]}));
    }
  }
};

TEST_F(AscendingBatch, ComesInOrderWhateverArrivesFirst) {
  for (const int64_t slots : {1, 2, 3, 4, 9, 40}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Make(slots, {.seed = seed, .max_delay_us = 200});
      RunAscending(0, Range(0, 40));
      RunAscending(1, Range(5, 30));
      RunAscending(0, Range(0, 40));
      EXPECT_GE(source_->fetches(), 70);
      EXPECT_LE(source_->fetches(), 110);
    }
  }
}

TEST_F(AscendingBatch, IsServedWhereHitsThatComeLaterFillTheCache) {
  Make(4);
  Run(0, {40, 41, 42, 43});
  RunAscending(0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 41, 42, 43});
  for (int32_t e = 1; e < 10; ++e) EXPECT_EQ(source_->fetches({0, e}), 1) << e;
}

TEST_F(AscendingBatch, ReadsEachExpertOnceFromAnEmptyCache) {
  Make(6);
  RunAscending(0, Range(0, 60));
  EXPECT_EQ(source_->fetches(), 60);
  EXPECT_EQ(cache_->counters().demand_bytes, 60 * source_->record_bytes());
}

TEST_F(AscendingBatch, StopsAtAFailedReadAndTheNextBatchRuns) {
  Make(3);
  source_->Fail({0, 7}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Begin(0, Range(0, 20), {}, ExpertOrder::kAscending);
  size_t delivered = 0;
  Result<ExpertCache::Ready> ready = cache_->Next({});
  for (; ready; ready = cache_->Next({})) {
    EXPECT_EQ(ready->position, static_cast<int32_t>(delivered++));
    *ready = {};
  }
  EXPECT_EQ(ready.error().code(), ErrorCode::kIo);
  EXPECT_LE(delivered, 7u);
  cache_->Abandon();
  RunAscending(1, Range(0, 20));
}

TEST_F(ExpertCacheTest, ADyingPinStartsTheNextRead) {
  Make(1);
  source_->Hold();
  cache_->Begin(0, Range(0, 2));
  EXPECT_EQ(source_->fetches(), 1);
  source_->Release();
  {
    const auto ready = cache_->Next({});
    ASSERT_TRUE(ready);
    EXPECT_EQ(source_->fetches(), 1);
  }
  EXPECT_EQ(source_->fetches(), 2);
  ASSERT_TRUE(cache_->Next({}));
}

TEST_F(ExpertCacheTest, APinnedSlotIsNeverEvictedNorWritten) {
  Make(3);
  cache_->Begin(0, Range(0, 1));
  Result<ExpertCache::Ready> kept = cache_->Next({});
  ASSERT_TRUE(kept);
  source_->Pinned(kept->pin.weights());
  for (int32_t i = 1; i < 20; ++i) Run(i, Range(0, 7));
  EXPECT_TRUE(source_->Holds(kept->pin.weights(), {0, 0}));
  EXPECT_EQ(source_->writes_into_pinned(), 0);
  source_->Unpinned(kept->pin.weights());
  Run(0, {0});  // a second pin on the same slot
  EXPECT_EQ(source_->fetches({0, 0}), 1);
  EXPECT_TRUE(source_->Holds(kept->pin.weights(), {0, 0}));
}

TEST_F(ExpertCacheTest, PinsMove) {
  Make(1);
  cache_->Begin(0, Range(0, 2));
  ExpertPin pin;
  {
    Result<ExpertCache::Ready> ready = cache_->Next({});
    ASSERT_TRUE(ready);
    pin = std::move(ready->pin);
  }
  EXPECT_EQ(source_->fetches(), 1);
  EXPECT_TRUE(source_->Holds(pin.weights(), {0, pin.key().expert}));
  pin = ExpertPin();
  EXPECT_EQ(source_->fetches(), 2);
  ASSERT_TRUE(cache_->Next({}));
}

TEST_F(ExpertCacheTest, AFailedReadIsReportedWithLayerAndExpert) {
  Make(4);
  source_->Fail({7, 3}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Begin(7, std::vector<int32_t>{3});
  const auto ready = cache_->Next({});
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code(), ErrorCode::kIo);
  EXPECT_EQ(ready.error().message(), "layer 7, expert 3: drive gone");
  EXPECT_EQ(cache_->Next({}).error().code(), ErrorCode::kIo) << "until it is abandoned";
  cache_->Abandon();
}

TEST_F(ExpertCacheTest, AFailedReadFreesItsSlotAndLeavesOthersAlone) {
  Make(3);
  source_->Fail({0, 1}, Error(ErrorCode::kCorrupt, "scale byte 255"));
  cache_->Begin(0, Range(0, 3));
  source_->WaitUntilIdle();
  EXPECT_EQ(cache_->Next({}).error().code(), ErrorCode::kCorrupt);
  cache_->Abandon();
  EXPECT_EQ(cache_->resident(), 2);
  Run(0, Range(0, 3));
  EXPECT_EQ(source_->fetches({0, 0}), 1);
  EXPECT_EQ(source_->fetches({0, 1}), 2);
  EXPECT_EQ(source_->fetches({0, 2}), 1);
  EXPECT_EQ(cache_->counters().evictions, 0u);
}

TEST_F(ExpertCacheTest, AfterAFailureNoMoreReadsOfTheBatchStart) {
  Make(1);
  source_->Fail({0, 0}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Begin(0, Range(0, 30));
  EXPECT_FALSE(cache_->Next({}));
  EXPECT_FALSE(cache_->Next({}));
  EXPECT_EQ(source_->fetches(), 1);
  cache_->Abandon();
  Run(0, Range(0, 30));
}

TEST_F(ExpertCacheTest, ReadsOfAnAbandonedBatchStayCached) {
  Make(4);
  source_->Hold();
  cache_->Begin(0, Range(0, 3));
  cache_->Abandon();
  source_->Release();
  source_->WaitUntilIdle();
  EXPECT_EQ(cache_->resident(), 3);
  Run(0, Range(0, 3));
  EXPECT_EQ(source_->fetches(), 3);
  EXPECT_EQ(cache_->counters().hits, 3u);
}

TEST_F(ExpertCacheTest, ABatchJoinsAReadThatIsOnItsWay) {
  Make(4);
  source_->Hold();
  cache_->Begin(0, Range(0, 3));
  cache_->Abandon();
  cache_->Begin(0, Range(1, 3));
  EXPECT_EQ(source_->fetches(), 4);
  source_->Release();
  Drain(0, Range(1, 3));
  EXPECT_EQ(source_->fetches(), 4);
  EXPECT_EQ(source_->most_at_once_per_key(), 1);
}

TEST_F(ExpertCacheTest, AJoinedReadThatFailsIsMadeAgainForWhoJoinedIt) {
  Make(4);
  source_->Hold();
  source_->Fail({0, 1}, Error(ErrorCode::kIo, "drive gone"));
  cache_->Begin(0, Range(0, 2));
  cache_->Abandon();
  cache_->Begin(0, std::vector<int32_t>{1});
  source_->Release();
  Drain(0, std::vector<int32_t>{1});
  EXPECT_EQ(source_->fetches(), 3);
}

TEST_F(ExpertCacheTest, AReadThatWasCancelledIsReadAgainForWhoJoinedIt) {
  Make(4, {.threads = 1, .max_started = 1});
  source_->Hold();
  cache_->Begin(0, Range(0, 3));  // one starts, two queue
  cache_->Abandon();              // cancels the two
  cache_->Begin(0, Range(0, 3));
  EXPECT_EQ(source_->fetches(), 3);
  source_->Release();
  Drain(0, Range(0, 3));
  EXPECT_EQ(source_->fetches(), 5);
  EXPECT_EQ(source_->most_at_once_per_key(), 1);
}

TEST_F(ExpertCacheTest, AbandonedReadsHoldSlotsOnlyUntilTheyEnd) {
  Make(2);
  source_->Hold();
  cache_->Begin(0, Range(0, 2));
  cache_->Abandon();
  cache_->Begin(1, Range(0, 5));
  EXPECT_EQ(source_->fetches(), 2) << "no slot is free";
  source_->Release();
  Drain(1, Range(0, 5));
}

TEST_F(ExpertCacheTest, AbandonWithoutABatchDoesNothing) {
  Make(2);
  cache_->Abandon();
  Run(0, {1});
  cache_->Abandon();
  Run(0, {1});
}

TEST_F(ExpertCacheTest, CancellationIsNoticedWhileAReadHangs) {
  Make(4);
  source_->Hold();
  CancelSource cancel;
  cache_->Begin(0, Range(0, 2));
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cancel.Cancel();
  });
  const auto ready = cache_->Next(cancel.token());
  user.join();
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code(), ErrorCode::kCancelled);
  cache_->Abandon();  // does not wait either
  source_->Release();
  Run(0, Range(0, 2));
}

TEST_F(ExpertCacheTest, TheTimeSpentWaitingIsCounted) {
  Make(2, {.max_delay_us = 2000});
  Run(0, Range(0, 20));
  EXPECT_GT(cache_->counters().wait_seconds, 0);
}

TEST_F(ExpertCacheTest, DestructionWaitsForReadsInFlight) {
  Make(4);
  source_->Hold();
  cache_->Begin(0, Range(0, 4));
  std::thread user([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source_->Release();
  });
  cache_.reset();
  source_->WaitUntilIdle();
  user.join();
}

TEST_F(ExpertCacheTest, EvictedBytesArePoisonedInDebugAndSanitizerBuilds) {
  if (!kIsDebug && !kIsSanitized) GTEST_SKIP() << "not this kind of build";
  Make(1);
  cache_->Begin(0, std::vector<int32_t>{0});
  ExpertWeights stale;
  {
    const auto ready = cache_->Next({});
    ASSERT_TRUE(ready);
    stale = ready->pin.weights();
  }
  source_->Hold();
  cache_->Begin(0, std::vector<int32_t>{1});
  EXPECT_EQ(*stale.w1.scale, 255);
  source_->Release();
  Drain(0, {1});
}

TEST_F(ExpertCacheTest, AfterAHangTheExpertComesFromItsCopyInAnotherSlot) {
  Make(4);
  source_->HaveCopies();
  source_->Fail({3, 1}, Error(ErrorCode::kDeadline, "drive hangs"));
  cache_->Begin(3, Range(0, 2));
  Drain(3, Range(0, 2));
  EXPECT_EQ(source_->fetches({3, 1}), 2);
  EXPECT_EQ(cache_->hung(), 1);
  EXPECT_EQ(cache_->counters().hung, 1u);
  // The hung slot is never used again, whatever else is read, until the drive lets go; its late write hurts nobody.
  for (int32_t layer = 4; layer < 8; ++layer) Run(layer, Range(0, 3));
  source_->EndHungReads();
  EXPECT_EQ(cache_->hung(), 0);
  for (int32_t layer = 8; layer < 12; ++layer) Run(layer, Range(0, 4));
  EXPECT_EQ(cache_->resident(), 4) << "the slot is in use again";
}

TEST_F(ExpertCacheTest, AHangWithoutACopyIsAnErrorAndTheCacheGoesOn) {
  Make(3);
  source_->Fail({3, 1}, Error(ErrorCode::kDeadline, "drive hangs"));
  cache_->Begin(3, Range(1, 1));
  const Result<ExpertCache::Ready> ready = cache_->Next({});
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code(), ErrorCode::kDeadline);
  EXPECT_THAT(ready.error().message(), HasSubstr("layer 3, expert 1"));
  cache_->Abandon();
  Run(4, Range(0, 2));
  source_->EndHungReads();
  Run(3, Range(0, 3));
}

TEST_F(ExpertCacheTest, ASecondHangOfTheSameExpertIsAnError) {
  Make(4);
  source_->HaveCopies();
  source_->Fail({0, 0}, Error(ErrorCode::kDeadline, "drive hangs"), 2);
  cache_->Begin(0, Range(0, 1));
  const Result<ExpertCache::Ready> ready = cache_->Next({});
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code(), ErrorCode::kDeadline);
  cache_->Abandon();
  EXPECT_EQ(cache_->hung(), 2);
  source_->EndHungReads();
  Run(0, Range(0, 4));
}

TEST_F(ExpertCacheTest, WithEverySlotHungWaitingEndsWithAnError) {
  Make(2);
  source_->HaveCopies();
  for (int32_t e = 0; e < 2; ++e) source_->Fail({0, e}, Error(ErrorCode::kDeadline, "drive hangs"));
  cache_->Begin(0, Range(0, 2));
  const Result<ExpertCache::Ready> ready = cache_->Next({});
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code(), ErrorCode::kDeadline);
  EXPECT_THAT(ready.error().message(), HasSubstr("--expert-cache"));
  cache_->Abandon();
  source_->EndHungReads();
  Run(0, Range(0, 2));
}

TEST_F(ExpertCacheTest, WithCopiesTheFloorLeavesRoomForSlotsThatHang) {
  const int32_t top_k = 4;
  Make(ExpertCache::Floor(top_k, true));
  source_->HaveCopies();
  for (int32_t e = 0; e < top_k; ++e) source_->Fail({0, e}, Error(ErrorCode::kDeadline, "drive hangs"));
  Run(0, Range(0, top_k));
  EXPECT_EQ(cache_->hung(), top_k);
  Run(1, Range(0, top_k));
  source_->EndHungReads();
}

}  // namespace
}  // namespace deltafin
