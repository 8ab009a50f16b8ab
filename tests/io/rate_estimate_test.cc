#include "io/rate_estimate.h"

#include <gtest/gtest.h>

namespace deltafin {
namespace {

constexpr uint64_t kChunk = 1 << 20;

// A drive that always has two chunks out and serves them at `rate`.
class Served {
 public:
  explicit Served(double measured) : estimate(measured) {}

  void Chunks(int count, double rate) {
    if (out_ == 0) HandOut();
    for (int i = 0; i < count; ++i) {
      HandOut();
      now_ns += static_cast<int64_t>(kChunk / rate * 1e9);
      out_ -= kChunk;
      estimate.Answer(now_ns, kChunk, out_, kChunk);
    }
  }
  void Drain() {
    out_ = 0;
    estimate.Answer(now_ns, 0, 0, kChunk);
  }
  void HandOut() {
    estimate.HandOut(now_ns, out_, out_ + kChunk, kChunk);
    out_ += kChunk;
  }
  double rate() const { return estimate.Current(now_ns); }

  RateEstimate estimate;
  int64_t now_ns = 5'000'000'000;

 private:
  uint64_t out_ = 0;
};

TEST(RateEstimate, StartsWithWhatWasMeasured) {
  EXPECT_EQ(RateEstimate(3e9).Current(0), 3e9);
  EXPECT_EQ(RateEstimate(0).Current(0), 0);
}

TEST(RateEstimate, FindsTheRateOfADriveThatWasNeverMeasured) {
  Served drive(0);
  drive.Chunks(10, 2e8);
  EXPECT_NEAR(drive.rate(), 2e8, 2e6);
  EXPECT_EQ(drive.estimate.ForSizes(drive.now_ns), 0);  // 10 MiB and 50 ms are not enough to choose sizes
  drive.Chunks(64, 2e8);
  EXPECT_NEAR(drive.estimate.ForSizes(drive.now_ns), 2e8, 2e6);
}

TEST(RateEstimate, FollowsASlowdownWithinAFewChunks) {
  Served drive(1e9);
  drive.Chunks(50, 1e9);
  drive.Chunks(4, 1e8);
  EXPECT_LT(drive.rate(), 2.5e8);
  drive.Chunks(30, 1e8);
  EXPECT_NEAR(drive.rate(), 1e8, 5e6);
  drive.Chunks(60, 1e9);
  EXPECT_GT(drive.rate(), 9e8);
}

TEST(RateEstimate, AnAnswerThatIsOwedCountsBeforeItComes) {
  Served drive(1e9);
  drive.Chunks(50, 1e9);
  const double before = drive.rate();
  drive.now_ns += 100'000'000;
  EXPECT_LT(drive.rate(), before / 10);
  drive.now_ns += 1'000'000'000;
  EXPECT_LT(drive.rate(), before / 100);
}

TEST(RateEstimate, SmallReadsWithPausesDoNotMakeADriveLookSlow) {
  RateEstimate estimate(1e9);
  int64_t now_ns = 0;
  for (int i = 0; i < 1000; ++i) {
    estimate.HandOut(now_ns, 0, 4096, kChunk);
    now_ns += 100'000;
    estimate.Answer(now_ns, 4096, 0, kChunk);
    now_ns += 1'000'000;
  }
  EXPECT_EQ(estimate.Current(now_ns), 1e9);
}

TEST(RateEstimate, FailuresSayNothingAboutSpeed) {
  Served drive(1e9);
  drive.HandOut();
  drive.now_ns += 500'000'000;
  drive.Drain();
  EXPECT_NEAR(drive.rate(), 1e9, 1);
}

TEST(RateEstimate, AnIdleDriveIsTrustedAgainLittleByLittle) {
  Served drive(1e9);
  drive.Chunks(50, 1e8);
  drive.Drain();
  const double slow = drive.rate();
  drive.now_ns += 1'000'000'000;
  EXPECT_GT(drive.rate(), slow);
  EXPECT_LT(drive.rate(), 3e8);
  drive.now_ns += 60'000'000'000;
  EXPECT_GT(drive.rate(), 9e8);
}

TEST(RateEstimate, SizesShrinkToAQuarterAtMost) {
  Served drive(1e9);
  drive.Chunks(50, 1e7);
  EXPECT_EQ(drive.estimate.ForSizes(drive.now_ns), 2.5e8);
}

TEST(Sizes, AChunkIsAMillisecondInAPowerOfTwo) {
  EXPECT_EQ(ChunkBytesFor(0), 1u << 20);
  EXPECT_EQ(ChunkBytesFor(1e6), 64u << 10);
  EXPECT_EQ(ChunkBytesFor(142e6), 128u << 10);
  EXPECT_EQ(ChunkBytesFor(272e6), 256u << 10);
  EXPECT_EQ(ChunkBytesFor(7.1e9), 2u << 20);
  EXPECT_EQ(ChunkBytesFor(1e12), 2u << 20);
}

TEST(Sizes, AWindowIsEightChunksOr32Milliseconds) {
  EXPECT_EQ(WindowBytesFor(0, 1 << 20), 32u << 20);
  EXPECT_EQ(WindowBytesFor(10e6, 64 << 10), 512u << 10);
  EXPECT_EQ(WindowBytesFor(500e6, 1 << 20), 16'000'000u);
  EXPECT_EQ(WindowBytesFor(13.6e9, 2 << 20), 32u << 20);
}

}  // namespace
}  // namespace deltafin
