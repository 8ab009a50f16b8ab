#include "io/chunk_cut.h"

#include <gtest/gtest.h>

#include <random>

#include "io/test_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

class ChunkCut : public testing::Test {
 protected:
  void SetUp() override {
    test::WriteTestFile(folder_.path() + "/a", 10);
    Result<DirectFile> file = DirectFile::Open(folder_.path() + "/a");
    ASSERT_TRUE(file);
    blocks_ = std::move(*file);
    block_ = blocks_.alignment();
    if (block_ == 1) GTEST_SKIP() << "the file system has no direct reads, so nothing is aligned";
  }

  ReadPart Part(const DirectFile& file, uint64_t offset, uint64_t bytes, const DirectFile& copy, uint64_t copy_offset) {
    return {{&file, offset, bytes, buffer_.data()}, 0, {&copy, copy_offset, 1}};
  }

  test::TempFolder folder_;
  DirectFile blocks_;  // with an alignment
  DirectFile bytes_;   // without
  uint64_t block_ = 0;
  AlignedBuffer buffer_ = test::MakeBuffer(1 << 20);
};

TEST_F(ChunkCut, CopiesFitThatLieInTheirBlocksInTheSameWay) {
  EXPECT_TRUE(CopyFits(Part(blocks_, 0, 5000, blocks_, 16 * block_)));
  EXPECT_TRUE(CopyFits(Part(blocks_, 77, 5000, blocks_, 3 * block_ + 77)));
  EXPECT_FALSE(CopyFits(Part(blocks_, 77, 5000, blocks_, 3 * block_ + 78)));
}

TEST_F(ChunkCut, ACopyInFinerBlocksFitsWhereItIsAWholeNumberOfCoarseBlocksAway) {
  EXPECT_TRUE(CopyFits(Part(blocks_, 77, 5000, bytes_, block_ + 77)));
  EXPECT_FALSE(CopyFits(Part(blocks_, 77, 5000, bytes_, 78)));
}

TEST_F(ChunkCut, ACopyInCoarserBlocksFitsWhereItReachesNoOtherMemory) {
  EXPECT_TRUE(CopyFits(Part(bytes_, block_, 2 * block_, blocks_, 0)));
  EXPECT_FALSE(CopyFits(Part(bytes_, block_ + 1, 2 * block_ - 1, blocks_, 1)));  // widened before the start
  EXPECT_FALSE(CopyFits(Part(bytes_, block_, 2 * block_ - 1, blocks_, 0)));      // ... beyond the end
  ReadPart part = Part(bytes_, block_, block_, blocks_, 0);
  part.request.destination += 1;
  EXPECT_FALSE(CopyFits(part));
}

TEST_F(ChunkCut, ACopyOnTheSameDriveIsNone) {
  ReadPart part = Part(blocks_, 0, 5000, blocks_, block_);
  part.copy.drive = 0;
  EXPECT_FALSE(CopyFits(part));
  part.copy = {};
  EXPECT_FALSE(CopyFits(part));
}

// Whatever the part and however chunk sizes change on the way: every wanted byte once, at its place, and no chunk
// writes where another does, at both places.
TEST_F(ChunkCut, ChunksMeetWithoutOverlap) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const uint64_t offset = random() % 100'000;
    const uint64_t bytes = 1 + random() % 200'000;
    const ReadPart part = Part(blocks_, offset, bytes, blocks_, offset + block_ * (random() % 50));
    ASSERT_TRUE(CopyFits(part));
    const std::byte* written = buffer_.data();
    const std::byte* copied = buffer_.data();
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t chunk_bytes = 1 + random() % 30'000;
      const ReadRequest chunk = NextChunk(part, done, chunk_bytes);
      ASSERT_EQ(chunk.offset, offset + done);
      ASSERT_GT(chunk.bytes, 0u);
      ASSERT_EQ(chunk.destination, written);
      const ReadRequest copy = AtCopy(part, chunk);
      ASSERT_EQ(copy.destination, copied);
      ASSERT_EQ(copy.offset - part.copy.offset, done);
      ASSERT_EQ(copy.bytes, chunk.bytes);
      // The first wanted byte is where the caller expects it.
      ASSERT_EQ(chunk.destination + chunk.offset % block_, buffer_.data() + offset % block_ + done);
      written += WidenedBytes(chunk.offset, chunk.bytes, block_);
      copied += WidenedBytes(copy.offset, copy.bytes, block_);
      done += chunk.bytes;
    }
    ASSERT_EQ(written, buffer_.data() + WidenedBytes(offset, bytes, block_));
  }
}

TEST_F(ChunkCut, AChunkFromFinerBlocksLandsAtTheSameWantedBytes) {
  const ReadPart part = Part(blocks_, 77, 5000, bytes_, block_ + 77);
  const ReadRequest copy = AtCopy(part, NextChunk(part, 0, 1 << 20));
  EXPECT_EQ(copy.destination, buffer_.data() + 77);
  EXPECT_EQ(copy.offset, block_ + 77);
}

}  // namespace
}  // namespace deltafin
