#include "io/read_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "io/test_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

// Aligned reads need a file with an alignment; a direct file has one, and these tests make no calls on it.
class ReadProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path() + "/weights.bin";
    test::WriteTestFile(path_, 100'000);
    Result<DirectFile> file = DirectFile::Open(path_);
    ASSERT_TRUE(file);
    file_ = std::move(*file);
    alignment_ = file_.alignment();
  }

  ReadProgress Start(uint64_t offset, uint64_t bytes) {
    return ReadProgress(ReadRequest{&file_, offset, bytes, buffer_.data()});
  }

  test::TempFolder folder_;
  std::string path_;
  DirectFile file_;
  uint64_t alignment_ = 0;
  AlignedBuffer buffer_ = test::MakeBuffer(1 << 20);
};

TEST_F(ReadProgressTest, WidensToWholeBlocks) {
  ReadProgress read = Start(3 * alignment_ + 5 % alignment_, 2 * alignment_ + 1);
  EXPECT_EQ(read.offset(), 3 * alignment_);
  EXPECT_EQ(read.bytes() % alignment_, 0u);
  EXPECT_GE(read.offset() + read.bytes(), 5 * alignment_ + 5 % alignment_ + 1);
  EXPECT_EQ(read.destination(), buffer_.data());
}

TEST_F(ReadProgressTest, AFullReadIsFinal) {
  ReadProgress read = Start(7, 5000);
  const auto all = static_cast<int64_t>(read.bytes());
  EXPECT_TRUE(read.Advance(all));
  EXPECT_TRUE(read.TakeStatus());
  EXPECT_EQ(read.bytes_read(), static_cast<uint64_t>(all));
}

TEST_F(ReadProgressTest, AShortReadGoesOnAtTheLastWholeBlock) {
  ReadProgress read = Start(0, 10 * alignment_);
  EXPECT_FALSE(read.Advance(static_cast<int64_t>(3 * alignment_ + alignment_ / 2)));
  const uint64_t next = AlignDown(3 * alignment_ + alignment_ / 2, alignment_);
  EXPECT_EQ(read.offset(), next);
  EXPECT_EQ(read.bytes(), 10 * alignment_ - next);
  EXPECT_EQ(read.destination(), buffer_.data() + next);
}

TEST_F(ReadProgressTest, AShortReadWithAllWantedBytesIsFinal) {
  ReadProgress read = Start(10, 20);
  EXPECT_TRUE(read.Advance(30));
  EXPECT_TRUE(read.TakeStatus());
}

TEST_F(ReadProgressTest, InterruptedAndRefusedForTheMomentAreRetried) {
  ReadProgress read = Start(0, 4096);
  EXPECT_FALSE(read.Advance(-EINTR));
  EXPECT_FALSE(read.Advance(-EAGAIN));
  EXPECT_EQ(read.offset(), 0u);
  EXPECT_TRUE(read.Advance(4096));
  EXPECT_TRUE(read.TakeStatus());
}

TEST_F(ReadProgressTest, EndlessRefusalsEndWithAnError) {
  ReadProgress read = Start(0, 4096);
  int calls = 0;
  while (!read.Advance(-EAGAIN)) ASSERT_LT(++calls, 1'000'000);
  EXPECT_EQ(read.TakeStatus().error().code(), ErrorCode::kIo);
}

TEST_F(ReadProgressTest, AnErrorNamesFileRangeAndReason) {
  ReadProgress read = Start(1000, 234);
  EXPECT_TRUE(read.Advance(-EIO));
  const Status status = read.TakeStatus();
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  EXPECT_THAT(status.error().message(), HasSubstr(path_));
  EXPECT_THAT(status.error().message(), HasSubstr("1000 to 1234"));
  EXPECT_THAT(status.error().message(), HasSubstr("Input/output error"));
}

TEST_F(ReadProgressTest, AnEarlyEndNamesFileOffsetExpectedAndGot) {
  ReadProgress read = Start(1, 9 * alignment_);
  EXPECT_FALSE(read.Advance(static_cast<int64_t>(4 * alignment_)));
  EXPECT_TRUE(read.Advance(0));
  const Status status = read.TakeStatus();
  EXPECT_EQ(status.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(status.error().message(), HasSubstr(path_));
  EXPECT_THAT(status.error().message(), HasSubstr("offset 1:"));
  EXPECT_THAT(status.error().message(), HasSubstr(Cat("expected ", 9 * alignment_, " bytes")));
  EXPECT_THAT(status.error().message(), HasSubstr(Cat("got ", 4 * alignment_ - 1, ":")));
}

}  // namespace
}  // namespace deltafin
