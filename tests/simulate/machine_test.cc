// What a described machine is, and what is refused.
#include "simulate/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace deltafin::simulate {
namespace {

using testing::HasSubstr;

Machine Four() {
  Machine machine;
  machine.drives = *ParseDrives("13.6,7.1,7.1,5.4");
  machine.ram_bytes = 128'000'000'000;
  machine.memory_bytes_per_second = 60e9;
  machine.flops_per_second = 1e12;
  return machine;
}

TEST(Machine, DrivesAreReadAsGigabytesASecond) {
  const Machine machine = Four();
  ASSERT_EQ(machine.drives.size(), 4u);
  EXPECT_DOUBLE_EQ(machine.drives[3].bytes_per_second, 5.4e9);
  EXPECT_NEAR(machine.summed_rate(), 33.2e9, 1);
  EXPECT_EQ(machine.fastest(), 0u);
  EXPECT_TRUE(CheckMachine(machine));
}

TEST(Machine, WhatIsNoRateIsRefused) {
  for (const char* text :
       {"", "0", "-7.1", "nan", "inf", "7.1,", ",7.1", "7,1 ", "1e300", "1e-9", "seven", "7.1GB", "0x10"})
    EXPECT_FALSE(ParseDrives(text)) << text;
  std::string many = "1";
  for (size_t i = 0; i < kMostDrives; ++i) many += ",1";
  EXPECT_FALSE(ParseDrives(many));
}

TEST(Machine, WhatCannotBeSimulatedIsRefused) {
  EXPECT_FALSE(CheckMachine({}));
  const auto refused = [](auto change) {
    Machine machine = Four();
    change(machine);
    return !CheckMachine(machine);
  };
  EXPECT_TRUE(refused([](Machine& m) { m.drives.clear(); }));
  EXPECT_TRUE(refused([](Machine& m) { m.drives[1].bytes_per_second = 0; }));
  EXPECT_TRUE(refused([](Machine& m) { m.drives[1].bytes_per_second = std::nan(""); }));
  EXPECT_TRUE(refused([](Machine& m) { m.drives[1].first_byte_seconds = -1; }));
  EXPECT_TRUE(refused([](Machine& m) { m.drives[1].hub = 0; }));
  EXPECT_TRUE(refused([](Machine& m) { m.memory_bytes_per_second = -1; }));
  EXPECT_TRUE(refused([](Machine& m) { m.memory_bytes_per_second = INFINITY; }));
  EXPECT_TRUE(refused([](Machine& m) { m.flops_per_second = 0; }));
}

TEST(Machine, AHubTakesTheDrivesThatItNames) {
  Machine machine = Four();
  ASSERT_TRUE(AddHub(machine, "7.1+5.4@8"));
  EXPECT_EQ(machine.drives[0].hub, -1);
  EXPECT_EQ(machine.drives[1].hub, 0);
  EXPECT_EQ(machine.drives[2].hub, -1);
  EXPECT_EQ(machine.drives[3].hub, 0);
  EXPECT_NEAR(machine.summed_rate(), 28.7e9, 1);
  ASSERT_TRUE(AddHub(machine, "7.1@5"));
  const Status again = AddHub(machine, "7.1@5");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("no drive of 7.1"));
  for (const char* text : {"", "@", "7.1", "7.1@", "@8", "9.9@8", "13.6+13.6@8", "13.6@0", "13.6@-1"})
    EXPECT_FALSE(AddHub(machine, text)) << text;
}

TEST(Machine, ChangesAddAndTakeAway) {
  Machine machine = Four();
  ASSERT_TRUE(ApplyChange(machine, "+drive:7.1"));
  EXPECT_EQ(machine.drives.size(), 5u);
  ASSERT_TRUE(ApplyChange(machine, "-drive:5.4"));
  EXPECT_NEAR(machine.summed_rate(), 34.9e9, 1);
  ASSERT_TRUE(ApplyChange(machine, "+ram:64GB"));
  EXPECT_EQ(machine.ram_bytes, 192'000'000'000u);
  ASSERT_TRUE(ApplyChange(machine, "-ram:100GB"));
  for (const char* text : {"", "drive:7.1", "+drive", "+drive:", "+drive:0", "+drive:nan", "-drive:5.4", "+ram:64",
                           "+ram:-1GB", "-ram:92GB", "+cpu:2", "*drive:1"})
    EXPECT_FALSE(ApplyChange(machine, text)) << text;
  Machine one;
  one.drives = *ParseDrives("7.1");
  EXPECT_FALSE(ApplyChange(one, "-drive:7.1"));
}

}  // namespace
}  // namespace deltafin::simulate
