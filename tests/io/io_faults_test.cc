// Drives that fail, hang and come back, with and without copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>

#include "io/io_scheduler.h"
#include "io/read_ends.h"
#include "io/test_file.h"
#include "support/fake_io_engine.h"
#include "support/paced_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using test::Ends;
using test::FakeFault;
using test::FakeIoEngine;
using test::FakeIoOptions;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kChunk = 64 * 1024;
constexpr uint64_t kContents = 4 << 20;
constexpr uint64_t kCopyAt = 777;  // of the copy's bytes, from those of the first place

FakeFault Eio() { return {.status = Fail(ErrorCode::kIo, "Input/output error")}; }

// Two drives; the second holds a copy of what the first has. The clock moves by hand.
class IoFaults : public testing::Test {
 protected:
  IoFaults() {
    std::vector<std::byte> shifted(kCopyAt);
    const std::vector<std::byte> contents = test::ContentsOf(kContents);
    shifted.insert(shifted.end(), contents.begin(), contents.end());
    copy_contents_ = std::move(shifted);
  }

  void Make(IoSchedulerOptions options = {}, FakeIoOptions fake = {.max_delay_us = 50}) {
    auto engine = std::make_unique<FakeIoEngine>(fake);
    engine_ = engine.get();
    engine_->SetContents(&first_, test::ContentsOf(kContents));
    engine_->SetContents(&second_, copy_contents_);
    engine_->SetFaults(fault_);
    if (options.chunk_bytes == 0) options.chunk_bytes = kChunk;
    options.drives = {{.name = "/mnt/a"}, {.name = "/mnt/b"}};
    options.on_degraded = [this](int32_t drive, const std::string& reason) {
      const std::lock_guard lock(mutex_);
      degraded_.push_back(Cat(drive, ": ", reason));
    };
    scheduler_ = std::make_unique<IoScheduler>(std::move(engine), options, &clock_);
  }

  ReadPart Part(uint64_t offset, uint64_t bytes, bool with_copy = true) {
    ReadPart part{.request = {&first_, offset, bytes, buffer_.data() + offset}, .drive = 0};
    if (with_copy) part.copy = {&second_, offset + kCopyAt, 1};
    return part;
  }
  void Read(int id, const ReadPart& part, IoPriority priority = IoPriority::kDemand, IoTag tag = 0) {
    scheduler_->Read({&part, 1}, priority, tag, ends_.Expect(id));
  }
  bool HasBytes(uint64_t offset, uint64_t bytes) const {
    return test::HoldsBytesFrom({buffer_.data() + offset, bytes}, offset);
  }
  // Before or after Make().
  void Fault(std::function<FakeFault(const ReadRequest&)> fault) {
    fault_ = std::move(fault);
    if (engine_ != nullptr) engine_->SetFaults(fault_);
  }
  void FirstDriveFails() {
    Fault([this](const ReadRequest& request) { return request.file == &first_ ? Eio() : FakeFault{}; });
  }
  void FirstDriveHangs() {
    Fault([this](const ReadRequest& request) { return FakeFault{.hangs = request.file == &first_}; });
  }
  void PassSeconds(double seconds) {
    clock_.Set(clock_.NowNs() + static_cast<int64_t>(seconds * 1e9));
    engine_->Wake();
  }
  std::vector<std::string> degraded() {
    const std::lock_guard lock(mutex_);
    return degraded_;
  }
  size_t ReadsOf(const DirectFile& file) const {
    const std::vector<ReadRequest> reads = engine_->submitted();
    return static_cast<size_t>(
        std::count_if(reads.begin(), reads.end(), [&](const ReadRequest& read) { return read.file == &file; }));
  }
  DriveCounters Drive(size_t drive) const { return scheduler_->drive_counters()[drive]; }

  DirectFile first_, second_;
  std::vector<std::byte> copy_contents_;
  AlignedBuffer buffer_ = test::MakeBuffer(kContents);
  test::VirtualClock clock_;
  Ends ends_;
  std::function<FakeFault(const ReadRequest&)> fault_;
  std::mutex mutex_;
  std::vector<std::string> degraded_;
  FakeIoEngine* engine_ = nullptr;
  std::unique_ptr<IoScheduler> scheduler_;
};

TEST_F(IoFaults, AChunkThatFailsOnceIsReadAgainFromTheSameDrive) {
  Fault([calls = 0](const ReadRequest&) mutable { return calls++ == 0 ? Eio() : FakeFault{}; });
  Make();
  Read(1, Part(1000, 5000));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(HasBytes(1000, 5000));
  EXPECT_EQ(ReadsOf(first_), 2u);
  EXPECT_EQ(ReadsOf(second_), 0u);
  EXPECT_EQ(Drive(0).errors, 1u);
  EXPECT_EQ(Drive(0).retries, 1u);
  EXPECT_TRUE(degraded().empty());
}

TEST_F(IoFaults, AChunkThatFailsTwiceIsReadFromItsCopy) {
  FirstDriveFails();
  Make();
  Read(1, Part(1000, 5000));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(HasBytes(1000, 5000));
  EXPECT_EQ(ReadsOf(first_), 2u);
  EXPECT_EQ(ReadsOf(second_), 1u);
  EXPECT_EQ(Drive(1).replica_bytes, 5000u);
  EXPECT_EQ(scheduler_->counters().errors, 0u);
}

TEST_F(IoFaults, AChunkThatStopsHalfwayIsReadWhole) {
  Fault([this](const ReadRequest& request) {
    FakeFault fault;
    if (request.file == &first_) fault = {.status = Fail(ErrorCode::kIo, "gone"), .delivered_bytes = 1234};
    return fault;
  });
  Make();
  Read(1, Part(1000, 5000));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(HasBytes(1000, 5000));
}

TEST_F(IoFaults, AFileThatIsTooShortIsReadFromItsCopyWithoutASecondTry) {
  Make({}, {.max_delay_us = 50});
  engine_->SetContents(&first_, test::ContentsOf(3000));
  Read(1, Part(1000, 5000));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(HasBytes(1000, 5000));
  EXPECT_EQ(ReadsOf(first_), 1u);
}

TEST_F(IoFaults, WithoutACopyTheErrorNamesDriveAndTries) {
  FirstDriveFails();
  Make();
  Read(1, Part(1000, 5000, false));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("I/O error"));
  EXPECT_EQ(ends_.last_message(), "drive /mnt/a, 2 tries: Input/output error");
  EXPECT_EQ(scheduler_->counters().errors, 1u);
}

TEST_F(IoFaults, WhenBothPlacesFailTheReadFailsOnceAndNamesBoth) {
  Fault([](const ReadRequest&) { return Eio(); });
  Make();
  Read(1, Part(1000, 5000));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("I/O error"));
  EXPECT_EQ(ends_.last_message(), "drive /mnt/b (and drive /mnt/a before), 4 tries: Input/output error");
  EXPECT_EQ(engine_->reads(), 4u);
}

TEST_F(IoFaults, ThreeFailuresInARowDegradeADriveAndAreToldOnce) {
  FirstDriveFails();
  Make();
  for (int id = 0; id < 20; ++id) {
    Read(id, Part(static_cast<uint64_t>(id) * 10'000, 10'000));
    ends_.WaitFor(static_cast<size_t>(id) + 1);
  }
  EXPECT_THAT(ends_.codes(), Each("ok"));
  EXPECT_TRUE(HasBytes(0, 200'000));
  EXPECT_THAT(degraded(), ElementsAre("0: 3 reads in a row failed, the last: Input/output error"));
  EXPECT_EQ(Drive(0).health, DriveHealth::kDegraded);
  EXPECT_EQ(Drive(1).health, DriveHealth::kGood);
  EXPECT_EQ(ReadsOf(first_), 3u);  // none after that
  EXPECT_EQ(ReadsOf(second_), 20u);
}

TEST_F(IoFaults, ADegradedDriveIsStillAskedForWhatNobodyElseHas) {
  FirstDriveFails();
  Make();
  Read(1, Part(0, 1000, false));
  Read(2, Part(2000, 1000, false));
  ends_.WaitFor(2);
  ASSERT_EQ(degraded().size(), 1u);
  Fault({});
  Read(3, Part(4000, 1000, false));
  ends_.WaitFor(3);
  EXPECT_THAT(ends_.codes(), ElementsAre("I/O error", "I/O error", "ok"));
  EXPECT_TRUE(HasBytes(4000, 1000));
  EXPECT_EQ(Drive(0).health, DriveHealth::kDegraded);
}

TEST_F(IoFaults, FailuresWithSuccessesBetweenDoNotDegrade) {
  Fault([calls = 0](const ReadRequest&) mutable { return calls++ % 2 == 0 ? Eio() : FakeFault{}; });
  Make();
  for (int id = 0; id < 10; ++id) {
    Read(id, Part(static_cast<uint64_t>(id) * 10'000, 10'000));
    ends_.WaitFor(static_cast<size_t>(id) + 1);
  }
  EXPECT_THAT(ends_.codes(), Each("ok"));
  EXPECT_EQ(Drive(0).errors, 10u);
  EXPECT_TRUE(degraded().empty());
}

TEST_F(IoFaults, AHungChunkWithACopyEndsItsReadAndTheNextReadUsesTheCopy) {
  FirstDriveHangs();
  Make();
  Read(1, Part(0, 5000));
  engine_->WaitUntilSubmitted(1);
  PassSeconds(1.9);
  Read(2, {.request = {&second_, 10'000 + kCopyAt, 10, buffer_.data() + 10'000}, .drive = 1});
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.order(), ElementsAre(2));  // not yet
  PassSeconds(0.2);
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "deadline exceeded"));
  EXPECT_THAT(ends_.last_message(), AllOf(HasSubstr("drive /mnt/a"), HasSubstr("bytes 0 to 5000"), HasSubstr("2.1 s")));
  EXPECT_EQ(degraded().size(), 1u);
  EXPECT_EQ(Drive(0).hung, 1u);

  ReadPart again = Part(0, 5000);
  again.request.destination = buffer_.data() + 100'000;
  Read(3, again);
  ends_.WaitFor(3);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "deadline exceeded", "ok"));
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data() + 100'000, 5000}, 0));
  EXPECT_EQ(ReadsOf(first_), 1u);

  // The drive comes back: the memory is free again, and the drive is not trusted again.
  engine_->ReleaseHung();
  ends_.WaitFor(4);
  EXPECT_THAT(ends_.order(), ElementsAre(2, 1, 3, 1));
  EXPECT_EQ(ends_.codes().back(), "cancelled");
  EXPECT_EQ(Drive(0).health, DriveHealth::kDegraded);
  EXPECT_EQ(scheduler_->counters().errors, 1u);
}

TEST_F(IoFaults, AHungChunkWithoutACopyEndsItsReadAfterTheLongLimit) {
  FirstDriveHangs();
  Make();
  Read(1, Part(0, 5000, false));
  engine_->WaitUntilSubmitted(1);
  PassSeconds(59);
  Read(2, {.request = {&second_, 10'000 + kCopyAt, 10, buffer_.data() + 10'000}, .drive = 1});
  ends_.WaitFor(1);
  PassSeconds(2);
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.order(), ElementsAre(2, 1));
  EXPECT_THAT(ends_.codes(), ElementsAre("ok", "deadline exceeded"));
  engine_->ReleaseHung();
  ends_.WaitFor(3);
  EXPECT_EQ(ends_.codes().back(), "cancelled");
}

TEST_F(IoFaults, WhatWaitsBehindAHungDriveMovesToItsCopiesAtOnce) {
  FirstDriveHangs();
  Make({.window_bytes = kChunk});
  Read(1, Part(0, kChunk));
  engine_->WaitUntilSubmitted(1);
  // Some may go before, because the drive that owes an answer counts as slow.
  for (int id = 2; id < 12; ++id) Read(id, Part(static_cast<uint64_t>(id) * kChunk, kChunk));
  PassSeconds(2.1);
  ends_.WaitFor(11);
  std::vector<std::string> codes = ends_.codes();
  EXPECT_EQ(std::count(codes.begin(), codes.end(), "ok"), 10);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), "deadline exceeded"), 1);
  EXPECT_TRUE(HasBytes(2 * kChunk, 10 * kChunk));
  EXPECT_EQ(ReadsOf(first_), 1u);
  engine_->ReleaseHung();
  ends_.WaitFor(12);
}

TEST_F(IoFaults, ReadsBehindAHungDriveWithoutCopiesEndWithBothCallsAfterTheLongLimit) {
  FirstDriveHangs();
  Make({.window_bytes = kChunk});
  Read(1, Part(0, kChunk, false));
  engine_->WaitUntilSubmitted(1);
  Read(2, Part(kChunk, kChunk, false));
  PassSeconds(30);
  Read(3, Part(2 * kChunk, kChunk, false));
  PassSeconds(31);
  ends_.WaitFor(3);
  EXPECT_THAT(ends_.order(), ElementsAre(1, 2, 2));
  EXPECT_THAT(ends_.codes(), ElementsAre("deadline exceeded", "deadline exceeded", "cancelled"));
  PassSeconds(30);
  ends_.WaitFor(5);
  EXPECT_THAT(ends_.order(), ElementsAre(1, 2, 2, 3, 3));
  Fault({});
  engine_->ReleaseHung();
  ends_.WaitFor(6);
  EXPECT_EQ(ReadsOf(first_), 1u);
  // It answers again, and is asked again.
  Read(4, Part(5 * kChunk, kChunk, false));
  ends_.WaitFor(7);
  EXPECT_EQ(ends_.codes().back(), "ok");
}

TEST_F(IoFaults, ReadsThatWaitLongForADriveThatAnswersAreNotGivenUp) {
  Make({.window_bytes = kChunk});
  engine_->Hold();
  for (int id = 0; id < 4; ++id) Read(id, Part(static_cast<uint64_t>(id) * kChunk, kChunk, false));
  for (size_t answered = 1; answered <= 4; ++answered) {
    engine_->WaitUntilSubmitted(answered);
    // The last waits 100 s, more than hang_seconds. Two leaps are less: an answer may be noted with the time before one.
    PassSeconds(25);
    engine_->Release();
    ends_.WaitFor(answered);
    engine_->Hold();
  }
  EXPECT_THAT(ends_.codes(), Each("ok"));
}

TEST_F(IoFaults, CancelAndDestructionWorkBehindAHungDrive) {
  FirstDriveHangs();
  Make({.window_bytes = kChunk});
  Read(1, Part(0, kChunk, false));
  engine_->WaitUntilSubmitted(1);
  Read(2, Part(kChunk, kChunk, false), IoPriority::kDemand, 5);
  scheduler_->Cancel(5);
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("cancelled"));
  std::thread destroyer([this] { scheduler_.reset(); });
  engine_->ReleaseHung();
  destroyer.join();
  EXPECT_THAT(ends_.order(), ElementsAre(2, 1));
  EXPECT_EQ(ends_.codes().back(), "ok");
}

TEST_F(IoFaults, AHungDriveLeavesTheEngineToTheOthers) {
  FirstDriveHangs();
  Make({.window_bytes = 100 * kChunk}, {.depth = 8, .max_delay_us = 50});
  for (int id = 0; id < 20; ++id) Read(id, Part(static_cast<uint64_t>(id) * kChunk, kChunk, false));
  engine_->WaitUntilSubmitted(6);
  for (int id = 100; id < 120; ++id) {
    const uint64_t offset = static_cast<uint64_t>(id - 60) * 20'000;
    Read(id, {.request = {&second_, offset + kCopyAt, 20'000, buffer_.data() + offset + (2 << 20)}, .drive = 1});
  }
  ends_.WaitFor(20);
  EXPECT_THAT(ends_.codes(), Each("ok"));
  EXPECT_EQ(engine_->hung(), 6u);  // two places of eight are kept for the other drive
  Fault({});
  engine_->ReleaseHung();
  ends_.WaitFor(40);
}

TEST_F(IoFaults, AReadWithPartsOnTwoDrivesEndsOnceWithAllBytes) {
  Make();
  const std::vector<ReadPart> parts = {
      Part(0, 3 * kChunk, false),
      {.request = {&second_, 3 * kChunk + kCopyAt, 2 * kChunk, buffer_.data() + 3 * kChunk}, .drive = 1},
      Part(5 * kChunk, 100)};
  scheduler_->Read(parts, IoPriority::kPrefetch, 3, ends_.Expect(1));
  ends_.WaitFor(1);
  Read(2, Part(0, 1));
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.order(), ElementsAre(1, 2));
  EXPECT_TRUE(HasBytes(0, 5 * kChunk + 100));
  EXPECT_EQ(scheduler_->counters().reads, 2u);
  EXPECT_EQ(scheduler_->counters().payload_bytes, 5 * kChunk + 101);
}

TEST_F(IoFaults, APartThatFailsStopsTheOtherParts) {
  Fault([this](const ReadRequest& request) { return request.file == &second_ ? Eio() : FakeFault{}; });
  Make({.window_bytes = kChunk});
  const std::vector<ReadPart> parts = {
      Part(0, 40 * kChunk, false), {.request = {&second_, kCopyAt, kChunk, buffer_.data() + 50 * kChunk}, .drive = 1}};
  scheduler_->Read(parts, IoPriority::kDemand, 0, ends_.Expect(1));
  ends_.WaitFor(1);
  Read(2, Part(0, 1, false));
  ends_.WaitFor(2);
  EXPECT_THAT(ends_.codes(), ElementsAre("I/O error", "ok"));
  EXPECT_LT(engine_->reads(), 30u);
}

TEST_F(IoFaults, ABitThatFlipsArrivesWithoutAnError) {
  Fault([](const ReadRequest&) { return FakeFault{.flipped_byte = 7}; });
  Make();
  Read(1, Part(0, 100));
  ends_.WaitFor(1);
  EXPECT_THAT(ends_.codes(), ElementsAre("ok"));
  EXPECT_TRUE(HasBytes(0, 7));
  EXPECT_FALSE(HasBytes(0, 8));
  EXPECT_TRUE(HasBytes(8, 92));
}

// Reads of several parts with copies, by two threads, while drives fail at random: every read ends once, with the right
// bytes or an error.
TEST_F(IoFaults, EveryReadOfManyPartsEndsOnceWithItsBytesWhileDrivesFail) {
  struct Open {
    uint64_t offset = 0, bytes = 0;
    AlignedBuffer buffer;
    std::atomic<int> ends{0};
    std::atomic<bool> ok{false};
  };
  std::atomic<uint32_t> dice{1};
  Fault([&dice](const ReadRequest&) {
    const uint32_t now = dice.fetch_add(1) * 2654435761u;
    return now % 50 == 0 ? Eio() : FakeFault{.delay_us = now % 100};
  });
  Make({.chunk_bytes = 5000, .window_bytes = 40'000}, {.seed = 5, .depth = 12, .max_delay_us = 30});
  constexpr int kReads = 300;
  std::deque<Open> reads(2 * kReads);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t) + 1);
      for (int i = 0; i < kReads; ++i) {
        Open& read = reads[static_cast<size_t>(t * kReads + i)];
        read.offset = random() % (kContents - 60'000);
        read.buffer = test::MakeBuffer(65'536);
        std::vector<ReadPart> parts;
        while (read.bytes < 40'000) {
          const uint64_t bytes = 1 + random() % 20'000;
          ReadPart part = Part(read.offset + read.bytes, bytes);
          part.request.destination = read.buffer.data() + read.bytes;
          if (random() % 2 == 0) {  // the other way round
            part = {
                {&second_, part.copy.offset, bytes, part.request.destination}, 1, {&first_, part.request.offset, 0}};
          }
          parts.push_back(part);
          read.bytes += bytes;
        }
        scheduler_->Read(parts, static_cast<IoPriority>(random() % 3), 1 + random() % 4, [&read](Status status) {
          read.ok = status.has_value();
          ++read.ends;
        });
        if (random() % 10 == 0) scheduler_->Cancel(1 + random() % 4);
        if (random() % 10 == 0) scheduler_->Raise(1 + random() % 4, IoPriority::kDemand);
        while (i >= 20 && reads[static_cast<size_t>(t * kReads + i - 20)].ends.load() == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  scheduler_.reset();
  int good = 0;
  for (const Open& read : reads) {
    ASSERT_EQ(read.ends.load(), 1);
    if (!read.ok) continue;
    ++good;
    ASSERT_TRUE(test::HoldsBytesFrom({read.buffer.data(), read.bytes}, read.offset));
  }
  EXPECT_GT(good, kReads);
}

}  // namespace
}  // namespace deltafin
