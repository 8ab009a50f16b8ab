#include "setup/retry.h"

#include <gtest/gtest.h>

#include "setup/rate_limit.h"
#include "setup/setup_case.h"

namespace deltafin::test {
namespace {

class HandClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 0;
};

TEST(Backoff, WaitsTwiceAsLongEachTimeWithinItsUpperHalf) {
  NoWaiter waiter;
  Backoff backoff({.attempts = 6, .first_seconds = 1, .most_seconds = 5, .most_retry_after = 900, .seed = 3}, waiter);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(backoff.Next({}, {}));
  EXPECT_FALSE(backoff.Next({}, {}));
  const double full[] = {1, 2, 4, 5, 5};
  ASSERT_EQ(waiter.waits().size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_GE(waiter.waits()[i], full[i] / 2);
    EXPECT_LE(waiter.waits()[i], full[i]);
  }
}

TEST(Backoff, DoesNotComeBackBeforeTheServerSaid) {
  NoWaiter waiter;
  Backoff backoff({}, waiter);
  EXPECT_TRUE(backoff.Next(7.0, {}));
  EXPECT_GE(waiter.waits().at(0), 7.0);
  EXPECT_LE(waiter.waits().at(0), 8.0);
}

TEST(Backoff, FortyFiveAttemptsTakeAboutHalfAnHour) {
  NoWaiter waiter;
  Backoff backoff({.attempts = 45, .first_seconds = 1, .most_seconds = 60, .most_retry_after = 900, .seed = 5}, waiter);
  while (backoff.Next({}, {})) {
  }
  double sum = 0;
  for (const double wait : waiter.waits()) sum += wait;
  EXPECT_GT(sum, 20 * 60);
  EXPECT_LT(sum, 40 * 60);
}

TEST(Backoff, DoesNotWaitForHours) {
  NoWaiter waiter;
  Backoff backoff({}, waiter);
  EXPECT_FALSE(backoff.Next(7200.0, {}));
  EXPECT_TRUE(waiter.waits().empty());
}

TEST(Backoff, CountsOnlyFailuresInARowWithoutData) {
  NoWaiter waiter;
  Backoff backoff({.attempts = 2, .first_seconds = 1, .most_seconds = 5, .most_retry_after = 900, .seed = 0}, waiter);
  for (int i = 0; i < 10; ++i) {
    backoff.Progressed();
    EXPECT_TRUE(backoff.Next({}, {}));
  }
  EXPECT_FALSE(backoff.Next({}, {}));
}

TEST(Retry, TriesAgainWhatMayPass) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504}) EXPECT_TRUE(IsTransientStatus(status)) << status;
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 416, 501}) EXPECT_FALSE(IsTransientStatus(status));
  EXPECT_TRUE(IsTransientError(ErrorCode::kIo));
  EXPECT_TRUE(IsTransientError(ErrorCode::kDeadline));
  EXPECT_FALSE(IsTransientError(ErrorCode::kCancelled));
  EXPECT_FALSE(IsTransientError(ErrorCode::kInvalidArgument));
}

TEST(RateLimit, KeepsTheSumBelowTheRate) {
  HandClock clock;
  clock.now_ns = 1'000'000'000;
  NoWaiter waiter;
  RateLimit limit(1000, clock, waiter);
  for (int i = 0; i < 10; ++i) limit.Take(500, {});
  // 5000 bytes at 1000 a second, less a quarter of a second's burst: the last one is done after 4.75 s.
  EXPECT_NEAR(waiter.waits().back(), 4.75, 1e-9);
  clock.now_ns += 100'000'000'000;
  const size_t waits = waiter.waits().size();
  limit.Take(200, {});
  EXPECT_EQ(waiter.waits().size(), waits);
}

TEST(RateLimit, WithoutARateNothingWaits) {
  HandClock clock;
  NoWaiter waiter;
  RateLimit(0, clock, waiter).Take(uint64_t{1} << 40, {});
  EXPECT_TRUE(waiter.waits().empty());
}

}  // namespace
}  // namespace deltafin::test
