// What the scheduler counts for each drive about its queue.
#include <gtest/gtest.h>

#include <atomic>

#include "io/io_scheduler.h"
#include "io/read_ends.h"
#include "io/test_file.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

constexpr uint64_t kChunk = 64 * 1024;

class SetClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void Set(double seconds) { now_ns_ = static_cast<int64_t>(seconds * 1e9); }

 private:
  std::atomic<int64_t> now_ns_{0};
};

class DriveCountersTest : public testing::Test {
 protected:
  void SetUp() override {
    auto engine = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.max_delay_us = 0});
    engine_ = engine.get();
    engine_->SetContents(&file_, test::ContentsOf(16 * kChunk));
    scheduler_.emplace(std::move(engine), IoSchedulerOptions{.drives = {{"a", 0}, {"b", 0}}, .chunk_bytes = kChunk},
                       &clock_);
    engine_->Hold();
  }
  void Read(int32_t drive, uint64_t offset) {
    scheduler_->Read({&file_, offset, kChunk, buffer_.data() + offset}, drive, IoPriority::kDemand, 0, ends_.Expect(0));
    engine_->WaitUntilSubmitted(++reads_);
  }
  // All that is out ends now.
  void End() {
    engine_->Release();
    ends_.WaitFor(reads_);
    engine_->Hold();
  }

  SetClock clock_;
  DirectFile file_;  // contents in memory, alignment 1
  AlignedBuffer buffer_ = test::MakeBuffer(16 * kChunk);
  test::Ends ends_;
  test::FakeIoEngine* engine_ = nullptr;
  size_t reads_ = 0;
  std::optional<IoScheduler> scheduler_;
};

TEST_F(DriveCountersTest, ReadsInFlightAreAveragedOverBusyTime) {
  for (const uint64_t offset : {0, 1, 2}) Read(0, offset * kChunk);
  clock_.Set(2);
  End();
  clock_.Set(10);  // idle: does not count
  Read(0, 3 * kChunk);
  clock_.Set(11);
  End();
  const DriveCounters counters = scheduler_->drive_counters()[0];
  EXPECT_EQ(counters.most_in_flight, 3);
  EXPECT_DOUBLE_EQ(counters.busy_seconds, 3);
  EXPECT_DOUBLE_EQ(counters.read_seconds, 7);
  EXPECT_DOUBLE_EQ(counters.mean_in_flight(), 7.0 / 3);
  EXPECT_DOUBLE_EQ(counters.busy_rate(), 4 * kChunk / 3.0);
  EXPECT_EQ(scheduler_->drive_counters()[1].most_in_flight, 0);
  EXPECT_EQ(scheduler_->drive_counters()[1].mean_in_flight(), 0);
}

TEST_F(DriveCountersTest, SinceAnEarlierTimeTellsOfTheTimeAfterIt) {
  Read(0, 0);
  clock_.Set(1);
  End();
  const DriveCounters earlier = scheduler_->drive_counters()[0];
  Read(0, kChunk);
  Read(0, 2 * kChunk);
  clock_.Set(1.5);
  End();
  const DriveCounters since = scheduler_->drive_counters()[0].Since(earlier);
  EXPECT_EQ(since.chunks, 2u);
  EXPECT_EQ(since.device_bytes, 2 * kChunk);
  EXPECT_EQ(since.latency.total(), 2u);
  EXPECT_DOUBLE_EQ(since.busy_seconds, 0.5);
  EXPECT_DOUBLE_EQ(since.mean_in_flight(), 2);
}

}  // namespace
}  // namespace deltafin
