// Memory of MLA pages: distinct, aligned, used again, and given back when nobody holds it.
#include "model/mla_page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace deltafin {
namespace {

constexpr uint64_t kShort = 100'001, kLong = (uint64_t{3} << 20) + 5;

MlaPage Take(MlaPagePool& pool) {
  Result<MlaPage> page = pool.Take();
  EXPECT_TRUE(page.has_value());
  return *page;
}

TEST(MlaPagePool, PagesDoNotOverlapAndAreAligned) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kShort, kLong}) {
    const auto pool = MlaPagePool::Create(bytes);
    std::vector<MlaPage> pages;
    for (int i = 0; i < 200; ++i) {
      pages.push_back(Take(*pool));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(pages.back().data()) % 64, 0u);
      ASSERT_EQ(pages.back().filled(), 0);
      if (bytes > 0) std::memset(pages.back().data(), i, std::min<uint64_t>(bytes, 4096));
      if (bytes > 0) pages.back().data()[bytes - 1] = static_cast<std::byte>(i);
    }
    for (size_t i = 0; i < pages.size() && bytes > 0; ++i) {
      ASSERT_EQ(pages[i].data()[0], static_cast<std::byte>(i)) << bytes;
      ASSERT_EQ(pages[i].data()[bytes - 1], static_cast<std::byte>(i)) << bytes;
    }
  }
}

TEST(MlaPagePool, APageIsSharedUntilOneHolderIsLeft) {
  const auto pool = MlaPagePool::Create(kShort);
  MlaPage page = Take(*pool);
  EXPECT_FALSE(page.shared());
  {
    const MlaPage other = page;
    EXPECT_TRUE(page.shared());
    EXPECT_EQ(page, other);
  }
  EXPECT_FALSE(page.shared());
  EXPECT_FALSE(page == Take(*pool));
}

TEST(MlaPagePool, PagesThatWentAreUsedAgainBeforeMoreMemoryIs) {
  const auto pool = MlaPagePool::Create(kShort);
  std::vector<MlaPage> pages;
  while (pool->blocks() < 2) pages.push_back(Take(*pool));
  const size_t in_a_block = pages.size() - 1;
  EXPECT_GE(in_a_block * kShort, uint64_t{7} << 20);  // little of a block is lost
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    if (pages.size() == 2 * in_a_block || (pages.size() > in_a_block + 1 && random() % 2 == 0)) {
      std::swap(pages[random() % pages.size()], pages.back());
      pages.pop_back();
    } else {
      pages.push_back(Take(*pool));
    }
    ASSERT_LE(pool->blocks(), 2);
  }
}

TEST(MlaPagePool, ABlockGoesWithItsLastPageAndThePoolWithItsLastBlock) {
  for (const uint64_t bytes : {kShort, kLong}) {
    std::weak_ptr<MlaPagePool> seen;
    {
      auto pool = MlaPagePool::Create(bytes);
      seen = pool;
      std::vector<MlaPage> pages;
      for (int i = 0; i < 300; ++i) pages.push_back(Take(*pool));
      EXPECT_GT(pool->blocks(), 1);
      std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
      const MlaPage last = pages.back();
      pages.clear();
      EXPECT_EQ(pool->blocks(), 1);
      pool.reset();
      EXPECT_FALSE(seen.expired());  // a page is left
      last.data()[bytes - 1] = std::byte{1};
    }
    EXPECT_TRUE(seen.expired());
  }
}

}  // namespace
}  // namespace deltafin
