#include <gtest/gtest.h>

#include "cache/eviction_policy.h"

namespace deltafin {
namespace {

bool Any(int32_t) { return true; }

TEST(LruPolicy, EvictsTheLeastRecentlyUsed) {
  const auto policy = CreateLruPolicy(4);
  for (int32_t slot = 0; slot < 4; ++slot) policy->Inserted(slot, {0, slot});
  EXPECT_EQ(policy->Victim(Any), 0);
  policy->Used(0);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Used(1);
  policy->Used(2);
  EXPECT_EQ(policy->Victim(Any), 3);
}

TEST(LruPolicy, SkipsWhatMayNotBeEvicted) {
  const auto policy = CreateLruPolicy(3);
  for (int32_t slot = 0; slot < 3; ++slot) policy->Inserted(slot, {0, slot});
  EXPECT_EQ(policy->Victim([](int32_t slot) { return slot != 0; }), 1);
  EXPECT_EQ(policy->Victim([](int32_t) { return false; }), -1);
}

TEST(LruPolicy, ForgetsRemovedSlots) {
  const auto policy = CreateLruPolicy(3);
  EXPECT_EQ(policy->Victim(Any), -1);
  policy->Inserted(2, {0, 2});
  policy->Inserted(1, {0, 1});
  policy->Removed(2);
  EXPECT_EQ(policy->Victim(Any), 1);
  policy->Inserted(2, {4, 9});
  policy->Removed(1);
  EXPECT_EQ(policy->Victim(Any), 2);
}

}  // namespace
}  // namespace deltafin
