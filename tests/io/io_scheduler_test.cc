#include "io/io_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <set>
#include <thread>

#include "io/read_ends.h"
#include "io/test_file.h"
#include "support/fake_io_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using test::Ends;
using test::FakeIoEngine;
using test::FakeIoOptions;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kChunk = 64 * 1024;
constexpr uint64_t kContents = 4 << 20;

class IoSchedulerTest : public testing::Test {
 protected:
  void Make(IoSchedulerOptions options, FakeIoOptions fake = {}) {
    auto engine = std::make_unique<FakeIoEngine>(fake);
    engine_ = engine.get();
    engine_->SetContents(&file_, test::ContentsOf(kContents));
    scheduler_ = std::make_unique<IoScheduler>(std::move(engine), options);
  }
  // A scheduler with room for one chunk, and a read (id 0) that fills it and is held there.
  void MakeBusy() {
    Make({.chunk_bytes = kChunk, .window_bytes = kChunk});
    engine_->Hold();
    Read(0, IoPriority::kDemand, 0, 0, kChunk);
    engine_->WaitUntilSubmitted(1);
  }
  void Read(int id, IoPriority priority, IoTag tag, uint64_t offset, uint64_t bytes) {
    scheduler_->Read({&file_, offset, bytes, buffer_.data() + offset}, 0, priority, tag, ends_.Expect(id));
  }
  std::vector<uint64_t> SubmittedOffsets() const {
    std::vector<uint64_t> offsets;
    for (const ReadRequest& request : engine_->submitted()) offsets.push_back(request.offset);
    return offsets;
  }

  DirectFile file_;  // contents in memory, alignment 1
  AlignedBuffer buffer_ = test::MakeBuffer(kContents);
  Ends ends_;
  FakeIoEngine* engine_ = nullptr;
  std::unique_ptr<IoScheduler> scheduler_;
};

TEST_F(IoSchedulerTest, BringsTheBytes) {
  Make({});
  Read(1, IoPriority::kDemand, 0, 1001, 77'777);
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data() + 1001, 77'777}, 1001));
}

TEST_F(IoSchedulerTest, DemandComesBeforePrefetchBeforeGuessesBeforeBackground) {
  MakeBusy();
  Read(1, IoPriority::kBackground, 0, 1 * kChunk, kChunk);
  Read(6, IoPriority::kGuess, 0, 6 * kChunk, kChunk);
  Read(2, IoPriority::kPrefetch, 0, 2 * kChunk, kChunk);
  Read(3, IoPriority::kDemand, 0, 3 * kChunk, kChunk);
  Read(4, IoPriority::kPrefetch, 0, 4 * kChunk, kChunk);
  Read(5, IoPriority::kDemand, 0, 5 * kChunk, kChunk);
  engine_->Release();
  ends_.WaitFor(7);
  EXPECT_THAT(ends_.order(), ElementsAre(0, 3, 5, 2, 4, 6, 1));
}

TEST_F(IoSchedulerTest, ADemandReadOvertakesTheChunksOfALongPrefetch) {
  Make({.chunk_bytes = kChunk, .window_bytes = kChunk});
  engine_->Hold();
  Read(1, IoPriority::kPrefetch, 0, 0, 4 * kChunk);
  engine_->WaitUntilSubmitted(1);
  Read(2, IoPriority::kDemand, 0, 8 * kChunk, kChunk);
  engine_->Release();
  ends_.WaitFor(2);
  EXPECT_THAT(SubmittedOffsets(), ElementsAre(0, 8 * kChunk, kChunk, 2 * kChunk, 3 * kChunk));
  EXPECT_THAT(ends_.order(), ElementsAre(2, 1));
}

TEST_F(IoSchedulerTest, TheWindowIsNeverExceededAndIsUsed) {
  Make({.chunk_bytes = kChunk, .window_bytes = 3 * kChunk + 5});
  engine_->Hold();
  Read(1, IoPriority::kDemand, 0, 0, 20 * kChunk);
  engine_->WaitUntilSubmitted(3);
  engine_->Release();
  ends_.WaitFor(1);
  EXPECT_EQ(engine_->most_bytes_in_flight(), 3 * kChunk);
  EXPECT_EQ(engine_->reads(), 20u);
}

TEST_F(IoSchedulerTest, AWindowSmallerThanAChunkStillReads) {
  Make({.chunk_bytes = kChunk, .window_bytes = 1});
  Read(1, IoPriority::kDemand, 0, 0, 5 * kChunk);
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_EQ(engine_->most_bytes_in_flight(), kChunk);
}

TEST_F(IoSchedulerTest, MoreReadsThanTheEngineTakesAtOnce) {
  Make({.chunk_bytes = 1000, .window_bytes = 1 << 20}, {.depth = 3});
  Read(1, IoPriority::kDemand, 0, 7, 100'000);
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data() + 7, 100'000}, 7));
}

TEST_F(IoSchedulerTest, CancelledReadsThatHaveNotStartedNeverStart) {
  MakeBusy();
  Read(1, IoPriority::kDemand, 8, 1 * kChunk, kChunk);
  Read(2, IoPriority::kPrefetch, 9, 2 * kChunk, kChunk);
  Read(3, IoPriority::kBackground, 8, 3 * kChunk, kChunk);
  scheduler_->Cancel(8);
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled", "cancelled"));
  engine_->Release();
  ends_.WaitFor(4);
  EXPECT_THAT(ends_.order(), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(SubmittedOffsets(), ElementsAre(0, 2 * kChunk));
  EXPECT_EQ(scheduler_->counters().cancelled, 2u);
}

TEST_F(IoSchedulerTest, OfACancelledReadThatHasStartedNothingMoreIsHandedOut) {
  Make({.drives = {{"a"}, {"b"}}, .chunk_bytes = kChunk, .window_bytes = kChunk});
  engine_->Hold();
  const ReadPart parts[] = {{.request = {&file_, 0, 3 * kChunk, buffer_.data()}, .drive = 0},
                            {.request = {&file_, 3 * kChunk, kChunk, buffer_.data() + 3 * kChunk}, .drive = 1}};
  scheduler_->Read(parts, IoPriority::kGuess, 8, ends_.Expect(1));
  engine_->WaitUntilSubmitted(2);
  scheduler_->Cancel(8);
  scheduler_->Cancel(8);
  EXPECT_TRUE(ends_.codes().empty()) << "the drives still write into its memory";
  engine_->Release();
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled"));
  EXPECT_EQ(engine_->reads(), 2u);
  const IoCounters counters = scheduler_->counters();
  EXPECT_EQ(counters.cancelled, 1u);
  EXPECT_EQ(counters.cancelled_guess_bytes, 2 * kChunk);
  EXPECT_EQ(counters.reads + counters.errors, 0u);
}

TEST_F(IoSchedulerTest, ACancelledReadThatIsWhollyHandedOutBringsItsBytes) {
  Make({.chunk_bytes = kChunk, .window_bytes = 3 * kChunk});
  engine_->Hold();
  Read(1, IoPriority::kDemand, 8, 0, 3 * kChunk);
  engine_->WaitUntilSubmitted(3);
  scheduler_->Cancel(8);
  engine_->Release();
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data(), 3 * kChunk}, 0));
}

TEST_F(IoSchedulerTest, GuessesLeaveTheWindowToReadsThatSomebodyWantsForSure) {
  Make({.chunk_bytes = kChunk, .window_bytes = 32 * kChunk}, {.depth = 64});
  engine_->Hold();
  Read(1, IoPriority::kGuess, 8, 0, 20 * kChunk);
  engine_->WaitUntilSubmitted(8);
  Read(2, IoPriority::kDemand, 0, 30 * kChunk, 10 * kChunk);
  engine_->WaitUntilSubmitted(18);
  EXPECT_EQ(engine_->reads(), 18u);
  engine_->Release();
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "ok"));
}

TEST_F(IoSchedulerTest, BackgroundReadsTakeTheWholeWindowUnlessTheyYield) {
  for (const bool yields : {false, true}) {
    Make({.chunk_bytes = kChunk, .window_bytes = 32 * kChunk, .background_yields = yields}, {.depth = 64});
    engine_->Hold();
    Read(1, IoPriority::kBackground, 8, 0, 20 * kChunk);
    engine_->WaitUntilSubmitted(yields ? 8 : 20);
    Read(2, IoPriority::kDemand, 0, 30 * kChunk, 10 * kChunk);
    engine_->WaitUntilSubmitted(yields ? 18 : 30);
    EXPECT_EQ(engine_->reads(), yields ? 18u : 30u);
    engine_->Release();
    ends_.WaitFor(yields ? 4 : 2);
  }
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "ok", "ok", "ok"));
}

TEST_F(IoSchedulerTest, ARaisedPrefetchJoinsTheDemandReadsAtTheirEnd) {
  MakeBusy();
  Read(1, IoPriority::kPrefetch, 8, 1 * kChunk, kChunk);
  Read(2, IoPriority::kBackground, 9, 2 * kChunk, kChunk);
  Read(3, IoPriority::kPrefetch, 8, 3 * kChunk, kChunk);
  Read(4, IoPriority::kDemand, 0, 4 * kChunk, kChunk);
  Read(5, IoPriority::kPrefetch, 7, 5 * kChunk, kChunk);
  scheduler_->Raise(8, IoPriority::kDemand);
  Read(6, IoPriority::kDemand, 0, 6 * kChunk, kChunk);
  engine_->Release();
  ends_.WaitFor(7);
  EXPECT_THAT(ends_.order(), ElementsAre(0, 4, 1, 3, 6, 5, 2));
}

TEST_F(IoSchedulerTest, TheRestOfAPrefetchThatHasStartedIsRaised) {
  Make({.chunk_bytes = kChunk, .window_bytes = kChunk});
  engine_->Hold();
  Read(1, IoPriority::kPrefetch, 8, 0, 3 * kChunk);
  engine_->WaitUntilSubmitted(1);
  Read(2, IoPriority::kPrefetch, 9, 10 * kChunk, kChunk);
  Read(3, IoPriority::kPrefetch, 9, 11 * kChunk, kChunk);
  scheduler_->Raise(9, IoPriority::kDemand);
  Read(4, IoPriority::kDemand, 0, 12 * kChunk, kChunk);
  scheduler_->Raise(8, IoPriority::kDemand);
  engine_->Release();
  ends_.WaitFor(4);
  EXPECT_THAT(ends_.order(), ElementsAre(2, 3, 4, 1));
}

TEST_F(IoSchedulerTest, RaiseNeverLowers) {
  MakeBusy();
  Read(1, IoPriority::kDemand, 8, 1 * kChunk, kChunk);
  Read(2, IoPriority::kPrefetch, 9, 2 * kChunk, kChunk);
  scheduler_->Raise(8, IoPriority::kBackground);
  engine_->Release();
  ends_.WaitFor(3);
  EXPECT_THAT(ends_.order(), ElementsAre(0, 1, 2));
}

TEST_F(IoSchedulerTest, EveryDriveHasItsOwnWindowAndOrder) {
  Make({.drives = {{"a"}, {"b"}, {"c"}}, .chunk_bytes = kChunk, .window_bytes = 2 * kChunk}, {.max_delay_us = 0});
  DirectFile files[3];
  for (DirectFile& file : files) engine_->SetContents(&file, test::ContentsOf(kContents));
  engine_->Hold();
  for (int32_t drive = 0; drive < 3; ++drive) {
    for (uint64_t i = 0; i < 2; ++i) {
      const ReadRequest request{&files[drive], i * 4 * kChunk, 4 * kChunk, buffer_.data() + i * 4 * kChunk};
      // Only one drive has demand reads; it does not keep the others from reading ahead.
      scheduler_->Read(request, drive, drive == 0 ? IoPriority::kDemand : IoPriority::kPrefetch, 0,
                       ends_.Expect(drive * 10 + static_cast<int>(i)));
    }
  }
  engine_->WaitUntilSubmitted(6);
  const std::vector<DriveCounters> busy = scheduler_->drive_counters();
  ASSERT_EQ(busy.size(), 3u);
  for (const DriveCounters& drive : busy) {
    EXPECT_EQ(drive.in_flight_bytes, 2 * kChunk);
    EXPECT_EQ(drive.queued_bytes, 6 * kChunk);
  }
  engine_->Release();
  ends_.WaitFor(6);
  std::vector<std::vector<uint64_t>> offsets(3);
  for (const ReadRequest& read : engine_->submitted())
    offsets[static_cast<size_t>(read.file - files)].push_back(read.offset / kChunk);
  EXPECT_THAT(offsets, testing::Each(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
  for (const DriveCounters& drive : scheduler_->drive_counters()) {
    EXPECT_EQ(drive.chunks, 8u);
    EXPECT_EQ(drive.latency.total(), 8u);
    EXPECT_EQ(drive.device_bytes, 8 * kChunk);
    EXPECT_EQ(drive.queued_bytes + drive.in_flight_bytes + drive.replica_bytes + drive.errors, 0u);
    EXPECT_GT(drive.busy_seconds, 0);
  }
}

TEST_F(IoSchedulerTest, TagZeroIsNoGroup) {
  MakeBusy();
  Read(1, IoPriority::kDemand, 0, kChunk, kChunk);
  scheduler_->Cancel(0);
  engine_->Release();
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "ok"));
}

TEST_F(IoSchedulerTest, AFailedChunkFailsItsReadOnceAndStopsTheRest) {
  Make({.chunk_bytes = kChunk, .window_bytes = 2 * kChunk});
  engine_->SetFault([](const ReadRequest& request) {
    return request.offset == kChunk ? Status(Fail(ErrorCode::kIo, "drive gone")) : Status();
  });
  Read(1, IoPriority::kDemand, 0, 0, 40 * kChunk);
  Read(2, IoPriority::kDemand, 0, 50 * kChunk, kChunk);
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("I/O error", "ok"));
  EXPECT_EQ(ends_.last_message(), "drive 0, 2 tries: drive gone");
  EXPECT_LT(engine_->reads(), 10u);
  EXPECT_EQ(scheduler_->counters().errors, 1u);
}

TEST_F(IoSchedulerTest, AFileThatEndsEarlyIsCorrupt) {
  Make({.chunk_bytes = kChunk}, {.file_ends_at = 2 * kChunk + 10});
  Read(1, IoPriority::kDemand, 0, 0, 3 * kChunk);
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("corrupt"));
  EXPECT_THAT(ends_.last_message(), HasSubstr("got 10"));
}

TEST_F(IoSchedulerTest, CallbacksRunOnOneThreadThatIsNotTheCallers) {
  Make({});
  for (int i = 0; i < 20; ++i) Read(i, IoPriority::kDemand, 0, static_cast<uint64_t>(i) * 100, 100);
  ends_.WaitFor(20);
  for (const std::thread::id thread : ends_.threads()) {
    EXPECT_EQ(thread, ends_.threads().front());
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

TEST_F(IoSchedulerTest, ACallbackMayRead) {
  Make({});
  scheduler_->Read({&file_, 0, 100, buffer_.data()}, 0, IoPriority::kDemand, 0, [this](Status status) {
    ASSERT_TRUE(status);
    Read(2, IoPriority::kDemand, 0, 500, 100);
  });
  ends_.WaitFor(1);
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data() + 500, 100}, 500));
}

TEST_F(IoSchedulerTest, CountsReadsAndBytes) {
  Make({.chunk_bytes = kChunk});
  Read(1, IoPriority::kDemand, 0, 5, 3 * kChunk);
  Read(2, IoPriority::kPrefetch, 0, 0, 100);
  ends_.WaitFor(2);
  const IoCounters counters = scheduler_->counters();
  EXPECT_EQ(counters.reads, 2u);
  EXPECT_EQ(counters.payload_bytes, 3 * kChunk + 100);
  EXPECT_EQ(counters.device_bytes, 3 * kChunk + 100);  // alignment 1
  EXPECT_EQ(counters.errors, 0u);
  EXPECT_GT(counters.busy_seconds, 0);
}

TEST_F(IoSchedulerTest, DestructionCancelsAllReadsAndWaitsForWhatIsOut) {
  Make({.chunk_bytes = kChunk, .window_bytes = kChunk});
  engine_->Hold();
  Read(1, IoPriority::kDemand, 0, 0, 2 * kChunk);
  engine_->WaitUntilSubmitted(1);
  Read(2, IoPriority::kDemand, 0, 4 * kChunk, kChunk);
  std::thread destroyer([this] { scheduler_.reset(); });
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.order(), ElementsAre(2));
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled"));
  engine_->Release();
  destroyer.join();
  EXPECT_THAT(ends_.order(), ElementsAre(2, 1));
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled", "cancelled"));
  EXPECT_FALSE(test::HoldsBytesFrom({buffer_.data() + kChunk, kChunk}, kChunk)) << "its second chunk was read";
}

TEST_F(IoSchedulerTest, AReadMadeByACallbackDuringDestructionIsCancelled) {
  MakeBusy();
  IoScheduler* scheduler = scheduler_.get();
  scheduler->Read(
      {&file_, 0, 10, buffer_.data() + kChunk}, 0, IoPriority::kDemand, 0, [this, scheduler](Status status) {
        EXPECT_FALSE(status);
        scheduler->Read({&file_, 0, 10, buffer_.data() + kChunk}, 0, IoPriority::kDemand, 0, ends_.Expect(2));
      });
  std::thread destroyer([this] { scheduler_.reset(); });
  ends_.WaitFor(1);
  engine_->Release();
  destroyer.join();
  EXPECT_THAT(ends_.order(), ElementsAre(2, 0));
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled", "ok"));
}

// Several threads read and cancel while reads fail at random: every read ends once, and a good end has the right bytes.
struct StressRead {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  AlignedBuffer buffer;
  std::atomic<int> ends{0};
  std::atomic<bool> ok{false};
};

TEST_F(IoSchedulerTest, EveryReadEndsExactlyOnceUnderStress) {
  constexpr int kThreads = 3;
  constexpr int kReadsPerThread = 400;
  Make({.chunk_bytes = 5000, .window_bytes = 40'000},
       {.seed = 11, .depth = 6, .max_delay_us = 60, .eio_probability = 0.02});
  std::deque<StressRead> reads(kThreads * kReadsPerThread);
  std::atomic<int> open{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t) + 100);
      for (int i = 0; i < kReadsPerThread; ++i) {
        StressRead& read = reads[static_cast<size_t>(t * kReadsPerThread + i)];
        ++open;
        read.offset = random() % (kContents - 30'000);
        read.bytes = 1 + random() % 30'000;
        read.buffer = test::MakeBuffer(32'768);
        scheduler_->Read({&file_, read.offset, read.bytes, read.buffer.data()}, 0,
                         static_cast<IoPriority>(random() % kIoPriorities), 1 + random() % 5,
                         [&read, &open](Status status) {
                           read.ok = status.has_value();
                           ++read.ends;
                           --open;
                         });
        while (open.load() > 30) std::this_thread::yield();
        if (random() % 20 == 0) scheduler_->Cancel(1 + random() % 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StressRead& read : reads) {
    while (read.ends.load() == 0) std::this_thread::yield();
  }
  const IoCounters counters = scheduler_->counters();
  scheduler_.reset();
  uint64_t good = 0;
  for (const StressRead& read : reads) {
    ASSERT_EQ(read.ends.load(), 1);
    if (!read.ok) continue;
    ++good;
    ASSERT_TRUE(test::HoldsBytesFrom({read.buffer.data(), read.bytes}, read.offset));
  }
  EXPECT_EQ(counters.reads, good);
  EXPECT_EQ(counters.reads + counters.errors + counters.cancelled, reads.size());
  EXPECT_GT(good, reads.size() / 4);
}

// The real engines, with direct reads and chunk borders inside a record.
class IoSchedulerEngineTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engines, IoSchedulerEngineTest, testing::Values("uring", "pread"),
                         [](const auto& info) { return info.param; });

TEST_P(IoSchedulerEngineTest, ReadsRecordsThatStartAnywhere) {
  Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = GetParam(), .depth = 4});
  if (!engine) GTEST_SKIP() << engine.error().message();
  const test::TempFolder folder;
  constexpr uint64_t kFile = 2'000'003;
  test::WriteTestFile(folder.path() + "/shard", kFile);
  Result<DirectFile> file = DirectFile::Open(folder.path() + "/shard");
  ASSERT_TRUE(file);
  const AlignedBuffer buffer = test::MakeBuffer(16 << 20);
  Ends ends;
  {
    IoScheduler scheduler(std::move(*engine), {.chunk_bytes = 20'000, .window_bytes = 200'000});
    EXPECT_EQ(scheduler.engine_name(), GetParam());
    for (uint64_t i = 0; i < 30; ++i)
      scheduler.Read({&*file, i * 63'001, 150'000 - 3 * i, buffer.data() + i * 163'840}, 0, IoPriority::kDemand, 0,
                     ends.Expect(static_cast<int>(i)));
    ends.WaitFor(30);
    EXPECT_GE(scheduler.counters().device_bytes, scheduler.counters().payload_bytes);
  }
  for (uint64_t i = 0; i < 30; ++i) {
    const uint64_t offset = i * 63'001;
    const std::byte* start = buffer.data() + i * 163'840 + offset % file->alignment();
    EXPECT_TRUE(test::HoldsBytesFrom({start, 150'000 - 3 * i}, offset)) << i;
  }
  EXPECT_THAT(ends.codes(), testing::Each("ok"));
}

TEST(IoSchedulerTags, AreNeverZeroAndNeverGivenTwice) {
  IoScheduler scheduler(std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{}), {});
  std::vector<std::vector<IoTag>> taken(4);
  std::vector<std::thread> threads;
  for (std::vector<IoTag>& tags : taken)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) tags.push_back(scheduler.NewTag());
    });
  for (std::thread& thread : threads) thread.join();
  std::set<IoTag> all;
  for (const std::vector<IoTag>& tags : taken) all.insert(tags.begin(), tags.end());
  EXPECT_EQ(all.size(), 4000u);
  EXPECT_FALSE(all.contains(0));
}

}  // namespace
}  // namespace deltafin
