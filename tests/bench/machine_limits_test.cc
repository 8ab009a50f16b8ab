#include "bench/machine_limits.h"

#include <gtest/gtest.h>

namespace deltafin {
namespace {

TEST(MachineLimits, AreFiguresOfThisMachine) {
  const auto limits = MachineLimits::Create("auto", PlaceThreads(MachineTopology(), 2), true);
  ASSERT_TRUE(limits) << limits.error().message();
  EXPECT_GT((*limits)->ReadBytesPerSecond(0.01), 1e6);
  EXPECT_GT((*limits)->FlopsPerSecond(0.01), 1e6);
  // Below zero would mean that parts did not run; a busy machine may take any time.
  EXPECT_GE((*limits)->ForkJoinSeconds(), 0);
  EXPECT_GE((*limits)->ForkJoinAsleepSeconds(), 0);
}

TEST(MachineLimits, RefuseAnUnknownInstructionSet) {
  const auto limits = MachineLimits::Create("sse9", {.threads = 1, .cpus = {}}, false);
  ASSERT_FALSE(limits);
  EXPECT_EQ(limits.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafin
