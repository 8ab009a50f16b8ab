#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/test_data.h"

namespace deltafin {
namespace {

class Cgroup : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  double Cores() const { return CgroupCores(folder_.path() + "/membership", folder_.path() + "/mount"); }
  uint64_t Room() const { return CgroupMemoryRoom(folder_.path() + "/membership", folder_.path() + "/mount"); }

  test::TempFolder folder_;
};

TEST_F(Cgroup, NothingThereLimitsNothing) {
  EXPECT_TRUE(std::isinf(Cores()));
  EXPECT_EQ(Room(), kNoCgroupLimit);
  Write("membership", "0::/\nnonsense\n7:cpu\n");
  EXPECT_TRUE(std::isinf(Cores()));
  EXPECT_EQ(Room(), kNoCgroupLimit);
}

TEST_F(Cgroup, TheQuotaOfTheProcessesOwnGroupCounts) {
  Write("membership", "0::/user.slice/job.scope\n");
  Write("mount/user.slice/job.scope/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(Cores(), 2.5);
}

TEST_F(Cgroup, TheSmallestQuotaOfTheParentsCounts) {
  Write("membership", "0::/a/b\n");
  Write("mount/a/b/cpu.max", "max 100000\n");
  Write("mount/a/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(Cores(), 3);
  Write("mount/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(Cores(), 0.5);
}

TEST_F(Cgroup, TheFirstVersionHasAQuotaAndAPeriod) {
  Write("membership", "4:memory:/x\n3:cpu,cpuacct:/x/y\n");
  Write("mount/cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1\n");
  Write("mount/cpu,cpuacct/x/y/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(Cores()));
  Write("mount/cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
  Write("mount/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(Cores(), 4);
  Write("mount/cpu/x/y/cpu.cfs_quota_us", "150000\n");
  Write("mount/cpu/x/y/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(Cores(), 1.5);
}

TEST_F(Cgroup, MemoryThatCanBeDroppedIsRoom) {
  Write("membership", "0::/a\n");
  Write("mount/a/memory.max", "1000000\n");
  Write("mount/a/memory.current", "600000\n");
  Write("mount/a/memory.stat", "anon 1\ninactive_file 200000\n");
  EXPECT_EQ(Room(), 600000u);
  Write("mount/memory.max", "500000\n");
  EXPECT_EQ(Room(), 500000u);
}

}  // namespace
}  // namespace deltafin
