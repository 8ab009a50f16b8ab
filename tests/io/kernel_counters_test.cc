// The kernel's counters: what their text means, and that a direct read shows up in them.
#include "io/kernel_counters.h"

#include <gtest/gtest.h>

#include "io/drive_list.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

// Fields of Documentation/block/stat.rst: reads, merged, sectors of 512 bytes, ms; writes ...; in flight, io_ticks.
TEST(DeviceCounters, AreReadsSectorsAndMillisecondsWithWork) {
  const auto c = ParseDeviceCounters(
      "  5240568  1898622 2294753433 132615805    98517      511 218692074  2087626 0  6403832 13\n");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->reads, 5240568u);
  EXPECT_EQ(c->bytes_read, 2294753433ull * 512);
  EXPECT_DOUBLE_EQ(c->busy_seconds, 6403.832);
  EXPECT_FALSE(ParseDeviceCounters(""));
  EXPECT_FALSE(ParseDeviceCounters("1 2 3"));
  EXPECT_FALSE(ParseDeviceCounters("1 2 3 4 5 6 7 8 nine 10 11"));
}

TEST(ProcessorTimes, AreBusyAndStolenSecondsOfAllProcessors) {
  const auto t = ParseProcessorTimes(
      "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 50 10 15 2000 250 3 3 4 0 0\ncpu1 50 10 15 2000 250 3 4 4 0 0\nintr 5\n",
      100);
  ASSERT_TRUE(t);
  EXPECT_DOUBLE_EQ(t->busy_seconds, 1.63);
  EXPECT_DOUBLE_EQ(t->stolen_seconds, 0.08);
  EXPECT_EQ(t->processors, 2);
  EXPECT_FALSE(ParseProcessorTimes("", 100));
  EXPECT_FALSE(ParseProcessorTimes("cpu  1 2 3\n", 100));
  EXPECT_FALSE(ParseProcessorTimes("intr 5\n", 100));
}

TEST(DeviceCounters, OfTheDriveUnderAFolderAreKnownWhereItIsADevice) {
  const auto drive = DriveOfFolder(test::RepoPath("models/k3-nano"));
  ASSERT_TRUE(drive) << drive.error().message();
  EXPECT_EQ(ReadDeviceCounters(drive->counters).has_value(), drive->block_device);
  EXPECT_FALSE(ReadDeviceCounters(""));
  EXPECT_FALSE(ReadDeviceCounters("/nowhere/stat"));
}

TEST(ProcessorTimes, GoUp) {
  const auto before = ReadProcessorTimes();
  ASSERT_TRUE(before);
  EXPECT_GT(before->busy_seconds, 0);
  EXPECT_GE(before->processors, 1);
}

}  // namespace
}  // namespace deltafin
