#include "cache/slot_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace deltafin {
namespace {

TEST(SlotArena, SlotsArePageAlignedAndDoNotOverlap) {
  const Result<SlotArena> arena = SlotArena::Create(5, 5000);
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->slots(), 5);
  EXPECT_EQ(arena->stride(), 8192u);
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->slot(i).data()) % 4096, 0u);
    EXPECT_EQ(arena->slot(i).size(), 8192u);
    std::memset(arena->slot(i).data(), i + 1, 8192);
  }
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(arena->slot(i).front(), static_cast<std::byte>(i + 1));
    EXPECT_EQ(arena->slot(i).back(), static_cast<std::byte>(i + 1));
  }
}

TEST(SlotArena, EverySlotIsHandedOutOnceLowestFirst) {
  Result<SlotArena> arena = SlotArena::Create(3, 1);
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->Take(), 0);
  EXPECT_EQ(arena->Take(), 1);
  EXPECT_EQ(arena->Take(), 2);
  EXPECT_EQ(arena->Take(), -1);
  arena->Give(1);
  EXPECT_EQ(arena->Take(), 1);
  EXPECT_EQ(arena->Take(), -1);
}

TEST(SlotArena, SizesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(SlotArena::Create(0, 4096).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(SlotArena::Create(-1, 4096).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(SlotArena::Create(int64_t{1} << 40, 4096).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(SlotArena::Create(1, ~uint64_t{0}).error().code(), ErrorCode::kInvalidArgument);
}

TEST(SlotArena, MoreThanTheAddressSpaceIsOutOfMemory) {
  EXPECT_EQ(SlotArena::Create(2'000'000'000, uint64_t{1} << 30).error().code(), ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace deltafin
