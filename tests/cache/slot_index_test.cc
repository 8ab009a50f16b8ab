#include "cache/slot_index.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>

namespace deltafin {
namespace {

TEST(SlotIndex, FindsWhatWasInserted) {
  SlotIndex index(2);
  index.Insert({3, 7}, 1);
  EXPECT_EQ(index.Find({3, 7}), 1);
  EXPECT_EQ(index.Find({7, 3}), -1);
  index.Erase({3, 7});
  EXPECT_EQ(index.Find({3, 7}), -1);
}

// Against std::map, at every filling from empty to full: erasing must not hide other keys of the same run.
class SlotIndexRandom : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SlotIndexRandom, testing::Values(1, 2, 3, 16, 100));

TEST_P(SlotIndexRandom, AgreesWithAMap) {
  const int slots = GetParam();
  SlotIndex index(slots);
  std::map<ExpertKey, int32_t> expected;
  std::mt19937 random(7);
  const auto any_key = [&] {
    return ExpertKey{static_cast<int32_t>(random() % 5), static_cast<int32_t>(random() % 60)};
  };
  for (int step = 0; step < 20'000; ++step) {
    const ExpertKey key = any_key();
    const auto found = expected.find(key);
    ASSERT_EQ(index.Find(key), found == expected.end() ? -1 : found->second);
    if (found != expected.end()) {
      index.Erase(key);
      expected.erase(found);
    } else if (static_cast<int>(expected.size()) < slots) {
      const auto slot = static_cast<int32_t>(random() % 1000);
      index.Insert(key, slot);
      expected[key] = slot;
    } else {
      const auto victim = std::next(expected.begin(), static_cast<std::ptrdiff_t>(random() % expected.size()));
      index.Erase(victim->first);
      expected.erase(victim);
    }
  }
}

}  // namespace
}  // namespace deltafin
