#include "base/machine.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace deltafin {
namespace {

TEST(Machine, FiguresAreSane) {
  EXPECT_GE(UsableCores(), 1);
  EXPECT_GT(ResidentBytes(), 0u);
  EXPECT_GE(PeakResidentBytes(), ResidentBytes() / 2);
  EXPECT_GT(AvailableMemoryBytes(), ResidentBytes());
}

TEST(AlignedBuffer, IsAlignedZeroAndCostsOnlyWhatIsTouched) {
  const uint64_t before = ResidentBytes();
  Result<AlignedBuffer> buffer = AlignedBuffer::Create(uint64_t{64} << 20, /*huge_pages=*/false);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % AlignedBuffer::kAlignment, 0u);
  EXPECT_EQ(static_cast<int>(buffer->data()[12345]), 0);
  EXPECT_LT(ResidentBytes(), before + (uint64_t{8} << 20));
  std::memset(buffer->data(), 1, buffer->size());
  EXPECT_GT(ResidentBytes(), before + (uint64_t{48} << 20));
}

TEST(AlignedBuffer, RefusesWhatTheAddressSpaceCannotHold) {
  const Result<AlignedBuffer> buffer = AlignedBuffer::Create(uint64_t{1} << 60);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code(), ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace deltafin
