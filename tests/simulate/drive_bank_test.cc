// Times of reads, each computed by hand.
#include "simulate/drive_bank.h"

#include <gtest/gtest.h>

#include <limits>

namespace deltafin::simulate {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

Machine MachineOf(std::vector<Drive> drives) {
  Machine machine;
  machine.drives = std::move(drives);
  return machine;
}

double EndOf(DriveBank& bank, int64_t tag) {
  int64_t got = -1;
  while (bank.Next(kForever, &got))
    if (got == tag) return bank.now();
  ADD_FAILURE() << "no read " << tag;
  return 0;
}

TEST(DriveBank, ReadsOneAfterTheOtherAndHidesLatencyBehindTheQueue) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0.01}}), 1);
  bank.Submit(0, {.tag = 1, .bytes = 1e6}, false);
  bank.Submit(0, {.tag = 2, .bytes = 2e6}, false);
  EXPECT_NEAR(EndOf(bank, 1), 0.02, 1e-9);
  EXPECT_NEAR(EndOf(bank, 2), 0.04, 1e-9);  // 30 ms of bytes, 10 ms once
  EXPECT_TRUE(bank.idle());
  EXPECT_NEAR(bank.busy_seconds(0), 0.03, 1e-9);
}

TEST(DriveBank, AShareOfTheRateIsWhatReadsGet) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0}}), 0.5);
  bank.Submit(0, {.tag = 1, .bytes = 1e6}, false);
  EXPECT_NEAR(EndOf(bank, 1), 0.02, 1e-9);
}

TEST(DriveBank, WhatIsAheadWaitsForTheRestAndIsNotInterrupted) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0}}), 1);
  bank.Submit(0, {.tag = 1, .bytes = 1e6}, true);
  bank.Submit(0, {.tag = 2, .bytes = 1e6}, true);
  bank.Submit(0, {.tag = 3, .bytes = 1e6}, false);
  int64_t tag = 0;
  std::vector<int64_t> order;
  while (bank.Next(kForever, &tag)) order.push_back(tag);
  EXPECT_EQ(order, (std::vector<int64_t>{1, 3, 2}));
}

TEST(DriveBank, DropsOnlyWhatHasNotBegun) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0}}), 1);
  bank.Submit(0, {.tag = 1, .bytes = 1e6}, true);
  bank.Submit(0, {.tag = 2, .bytes = 1e6}, true);
  EXPECT_FALSE(bank.Drop(1, 1));
  EXPECT_TRUE(bank.Drop(2, 1));
  EXPECT_NEAR(EndOf(bank, 1), 0.01, 1e-9);
  EXPECT_TRUE(bank.idle());
  EXPECT_EQ(bank.bytes_read(0), 1e6);
}

TEST(DriveBank, PromotedReadsComeBeforeOthersAhead) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0}}), 1);
  for (int64_t tag = 1; tag <= 3; ++tag) bank.Submit(0, {.tag = tag, .bytes = 1e6}, true);
  bank.Promote(3);
  EXPECT_EQ(bank.backlog_bytes(0), 1e6);
  EXPECT_NEAR(EndOf(bank, 3), 0.02, 1e-9);
}

TEST(DriveBank, DrivesOfAHubShareItInProportionAndGetItBack) {
  Machine machine = MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0, .hub = 0},
                               {.bytes_per_second = 50e6, .first_byte_seconds = 0, .hub = 0}});
  machine.hub_rates = {75e6};
  EXPECT_DOUBLE_EQ(machine.summed_rate(), 75e6);
  DriveBank bank(machine, 1);
  bank.Submit(0, {.tag = 1, .bytes = 1e6}, false);
  bank.Submit(1, {.tag = 2, .bytes = 1e6}, false);
  EXPECT_NEAR(EndOf(bank, 1), 0.02, 1e-9);  // at 50 MB/s
  EXPECT_NEAR(EndOf(bank, 2), 0.03, 1e-9);  // half at 25 MB/s, half alone at 50
}

TEST(DriveBank, TheClockStopsWhereItIsAskedTo) {
  DriveBank bank(MachineOf({{.bytes_per_second = 100e6, .first_byte_seconds = 0}}), 1);
  int64_t tag = 0;
  EXPECT_FALSE(bank.Next(0.5, &tag));
  EXPECT_DOUBLE_EQ(bank.now(), 0.5);
  bank.Submit(0, {.tag = 7, .bytes = 1e6}, false);
  EXPECT_FALSE(bank.Next(0.505, &tag));
  EXPECT_TRUE(bank.Next(1, &tag));
  EXPECT_NEAR(bank.now(), 0.51, 1e-9);
}

TEST(DriveBank, TinyReadsAtAbsurdRatesEnd) {
  DriveBank bank(MachineOf({{.bytes_per_second = kMostRate, .first_byte_seconds = 0}}), 1);
  int64_t tag = 0;
  EXPECT_FALSE(bank.Next(1e6, &tag));
  for (int64_t i = 0; i < 100; ++i) bank.Submit(0, {.tag = i, .bytes = 1.5}, false);
  int64_t ended = 0;
  while (bank.Next(kForever, &tag)) ++ended;
  EXPECT_EQ(ended, 100);
}

}  // namespace
}  // namespace deltafin::simulate
