#include "io/io_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <random>
#include <thread>

#include "io/test_file.h"
#include "support/fake_io_engine.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFileBytes = 3 * 1024 * 1024 + 1237;  // ends inside a block

class IoEngineTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    test::WriteTestFile(path_, kFileBytes);
    Result<DirectFile> file = DirectFile::Open(path_);
    ASSERT_TRUE(file);
    file_ = std::move(*file);
    if (GetParam() == "fake") {
      engine_ = std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = 3, .depth = 8});
      return;
    }
    Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = GetParam(), .depth = 8});
    if (!engine) GTEST_SKIP() << engine.error().message();
    engine_ = std::move(*engine);
  }

  IoCompletion ReadOne(const ReadRequest& request) {
    engine_->Submit(77, request);
    IoCompletion done[4];
    size_t count = 0;
    while (count == 0) count = engine_->Wait(done, -1);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(done[0].id, 77u);
    return std::move(done[0]);
  }

  test::TempFolder folder_;
  const std::string path_ = folder_.path() + "/weights.bin";
  DirectFile file_;
  std::unique_ptr<IoEngine> engine_;
  AlignedBuffer buffer_ = test::MakeBuffer(8 << 20);
};

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineTest, testing::Values("uring", "pread", "fake"),
                         [](const auto& info) { return info.param; });

TEST_P(IoEngineTest, ReadsOddOffsetsAndSizes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = random() % kFileBytes;
    const uint64_t bytes = 1 + random() % std::min<uint64_t>(kFileBytes - offset, 100'000);
    const IoCompletion done = ReadOne({&file_, offset, bytes, buffer_.data()});
    ASSERT_TRUE(done.status) << done.status.error().message();
    ASSERT_GE(done.bytes_read, bytes);
    const std::byte* start = buffer_.data() + offset % file_.alignment();
    ASSERT_TRUE(test::HoldsBytesFrom({start, bytes}, offset)) << "offset " << offset << ", " << bytes << " bytes";
  }
}

TEST_P(IoEngineTest, ReadsUpToTheEndOfAFileThatEndsInsideABlock) {
  const uint64_t offset = kFileBytes - 5000;
  const IoCompletion done = ReadOne({&file_, offset, 5000, buffer_.data()});
  ASSERT_TRUE(done.status) << done.status.error().message();
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data() + offset % file_.alignment(), 5000}, offset));
}

TEST_P(IoEngineTest, TheWholeFileAtOnce) {
  const IoCompletion done = ReadOne({&file_, 0, kFileBytes, buffer_.data()});
  ASSERT_TRUE(done.status) << done.status.error().message();
  EXPECT_TRUE(test::HoldsBytesFrom({buffer_.data(), kFileBytes}, 0));
}

TEST_P(IoEngineTest, OneByteBeyondTheEndIsCorrupt) {
  const IoCompletion done = ReadOne({&file_, kFileBytes - 100, 101, buffer_.data()});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(done.status.error().message(), HasSubstr(path_));
  EXPECT_THAT(done.status.error().message(), HasSubstr("expected 101 bytes, got 100"));
}

TEST_P(IoEngineTest, FarBeyondTheEndIsCorrupt) {
  const IoCompletion done = ReadOne({&file_, 50 * kFileBytes, 10, buffer_.data()});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(done.status.error().message(), HasSubstr("got 0"));
}

TEST_P(IoEngineTest, AFileTruncatedAfterOpeningIsCorrupt) {
  ASSERT_EQ(truncate(path_.c_str(), 10'000), 0);
  const IoCompletion done = ReadOne({&file_, 8'000, 4'000, buffer_.data()});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(done.status.error().message(), HasSubstr("expected 4000 bytes, got 2000"));
}

TEST_P(IoEngineTest, AnErrorOfTheSystemNamesFileRangeAndReason) {
  // A descriptor that cannot be read from stands in for a failing drive.
  const int write_only = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(dup2(write_only, file_.fd()), file_.fd());
  close(write_only);
  const IoCompletion done = ReadOne({&file_, 4096, 100, buffer_.data()});
  ASSERT_FALSE(done.status);
  EXPECT_EQ(done.status.error().code(), ErrorCode::kIo);
  EXPECT_THAT(done.status.error().message(), HasSubstr(path_ + ": bytes 4096 to 4196: Bad file descriptor"));
}

TEST_P(IoEngineTest, EveryReadOfAFullQueueEndsOnce) {
  constexpr uint64_t kEach = 64 * 1024;
  std::map<uint64_t, int> ends;
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 8; ++i)
      engine_->Submit(100 + i, {&file_, i * kEach + 13, kEach, buffer_.data() + i * 2 * kEach});
    IoCompletion done[3];  // fewer than are in flight
    for (size_t count = 0; count < 8;) {
      const size_t got = engine_->Wait(done, -1);
      for (size_t i = 0; i < got; ++i) {
        ASSERT_TRUE(done[i].status);
        ++ends[done[i].id];
      }
      count += got;
    }
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t offset = i * kEach + 13;
      ASSERT_TRUE(test::HoldsBytesFrom({buffer_.data() + i * 2 * kEach + offset % file_.alignment(), kEach}, offset));
    }
  }
  ASSERT_EQ(ends.size(), 8u);
  for (const auto& [id, count] : ends) EXPECT_EQ(count, 20) << id;
}

TEST_P(IoEngineTest, WakeEndsAWaitWithNothingInFlight) {
  std::thread other([this] { engine_->Wake(); });
  IoCompletion done[1];
  EXPECT_EQ(engine_->Wait(done, -1), 0u);
  other.join();
}

TEST_P(IoEngineTest, AWakeBeforeTheWaitIsNotLost) {
  IoCompletion done[1];
  for (int i = 0; i < 100; ++i) {
    engine_->Wake();
    ASSERT_EQ(engine_->Wait(done, -1), 0u);
  }
}

TEST_P(IoEngineTest, AWaitWithATimeoutEndsWithoutAnAnswer) {
  IoCompletion done[1];
  EXPECT_EQ(engine_->Wait(done, 0), 0u);
  EXPECT_EQ(engine_->Wait(done, 2'000'000), 0u);
}

TEST_P(IoEngineTest, AWaitWithALongTimeoutEndsWithTheAnswer) {
  engine_->Submit(5, {&file_, 100, 5000, buffer_.data()});
  IoCompletion done[1];
  ASSERT_EQ(engine_->Wait(done, 600'000'000'000), 1u);
  EXPECT_EQ(done[0].id, 5u);
  EXPECT_TRUE(done[0].status);
}

TEST_P(IoEngineTest, ReadsInFlightEndBeforeTheEngineDoes) {
  for (uint64_t i = 0; i < 8; ++i)
    engine_->Submit(i, {&file_, i * 4096, 300'000, buffer_.data() + i * 400 * 1024 / 4096 * 4096});
  engine_.reset();
  buffer_ = test::MakeBuffer(4096);
}

TEST(CreateIoEngine, AnUnknownKindIsRefused) {
  const auto engine = CreateIoEngine({.kind = "mmap"});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(engine.error().message(), HasSubstr("\"mmap\""));
}

TEST(CreateIoEngine, ADepthOfZeroIsRefused) {
  const auto engine = CreateIoEngine({.kind = "pread", .depth = 0});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), ErrorCode::kInvalidArgument);
}

TEST(CreateIoEngine, AutoGivesAnEngineOrSaysWhyNot) {
  std::string note;
  const auto engine = CreateIoEngine({}, &note);
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->name() == "uring", note.empty());
}

}  // namespace
}  // namespace deltafin
