#include "base/interleave_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace deltafin {
namespace {

// -1 where the kernel does not tell.
int PolicyOfThisThread() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
}

TEST(InterleaveScope, DoesNothingWithOneNode) {
  const int before = PolicyOfThisThread();
  const InterleaveScope scope(std::vector<int>{0});
  EXPECT_EQ(scope.description(), "");
  EXPECT_TRUE(scope.status().has_value());
  EXPECT_EQ(PolicyOfThisThread(), before);
}

// The kernel leaves out nodes that this machine lacks, so that a second one may be named anywhere.
TEST(InterleaveScope, HoldsForThreadsStartedInsideAndEndsWithIt) {
  if (PolicyOfThisThread() != MPOL_DEFAULT) GTEST_SKIP() << "no memory policies here, or one set from outside";
  std::thread inside;
  int policy_inside = -1;
  {
    const InterleaveScope scope(std::vector<int>{0, 1});
    if (!scope.status()) {
      EXPECT_EQ(scope.description(), "2 nodes, not interleaved");
      GTEST_SKIP() << scope.status().error().message();
    }
    EXPECT_EQ(scope.description(), "2 nodes, interleaved");
    EXPECT_EQ(PolicyOfThisThread(), MPOL_INTERLEAVE);
    inside = std::thread([&] { policy_inside = PolicyOfThisThread(); });
  }
  inside.join();
  EXPECT_EQ(policy_inside, MPOL_INTERLEAVE);
  EXPECT_EQ(PolicyOfThisThread(), MPOL_DEFAULT);
}

TEST(InterleaveScope, KeepsAPolicySetFromOutside) {
  if (PolicyOfThisThread() != MPOL_DEFAULT) GTEST_SKIP() << "no memory policies here, or one set from outside";
  std::thread([] {
    const unsigned long node = 1;
    ASSERT_EQ(syscall(SYS_set_mempolicy, MPOL_BIND, &node, 64), 0);
    {
      const InterleaveScope scope(std::vector<int>{0, 1});
      EXPECT_EQ(scope.description(), "2 nodes, memory policy of the caller");
      EXPECT_TRUE(scope.status().has_value());
      EXPECT_EQ(PolicyOfThisThread(), MPOL_BIND);
    }
    EXPECT_EQ(PolicyOfThisThread(), MPOL_BIND);
  }).join();
}

TEST(InterleaveScope, SaysWhenTheSystemRefuses) {
  if (PolicyOfThisThread() != MPOL_DEFAULT) GTEST_SKIP() << "no memory policies here, or one set from outside";
  const InterleaveScope scope(std::vector<int>{1000000, 1000001});
  EXPECT_EQ(scope.description(), "2 nodes, not interleaved");
  ASSERT_FALSE(scope.status().has_value());
  EXPECT_EQ(scope.status().error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(PolicyOfThisThread(), MPOL_DEFAULT);
}

}  // namespace
}  // namespace deltafin
