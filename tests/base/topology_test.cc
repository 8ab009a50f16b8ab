// Where threads go, on machines that are made up.
#include "base/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Topology Pinnable(std::vector<Cpu> cpus) {
  Topology topology;
  topology.cpus = std::move(cpus);
  topology.can_pin = true;
  return topology;
}

// Two cores of two hyperthreads each, numbered as Linux does on most machines.
Topology TwoCoresFourThreads() { return Pinnable({{0, 0}, {1, 1}, {2, 0}, {3, 1}}); }
// Two fast cores with hyperthreads next to each other, then three slow ones.
Topology TwoKinds() {
  return Pinnable({{0, 0, 0, true},
                   {1, 0, 0, true},
                   {2, 2, 0, true},
                   {3, 2, 0, true},
                   {4, 4, 0, false},
                   {5, 5, 0, false},
                   {6, 6, 0, false}});
}

TEST(PlaceThreads, TakesOneThreadACoreByDefault) {
  const ThreadPlacement placement = PlaceThreads(TwoCoresFourThreads(), 0);
  EXPECT_EQ(placement.threads, 2);
  EXPECT_THAT(placement.cpus, ElementsAre(0, 1));
}

TEST(PlaceThreads, TakesSecondHyperthreadsLast) {
  EXPECT_THAT(PlaceThreads(TwoCoresFourThreads(), 3).cpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(PlaceThreads(TwoKinds(), 7).cpus, ElementsAre(0, 2, 4, 5, 6, 1, 3));
}

TEST(PlaceThreads, TakesFastCoresOnlyByDefaultAndFirstWhenAskedForMore) {
  const ThreadPlacement placement = PlaceThreads(TwoKinds(), 0);
  EXPECT_EQ(placement.threads, 2);
  EXPECT_THAT(placement.cpus, ElementsAre(0, 2));
  EXPECT_THAT(PlaceThreads(TwoKinds(), 3).cpus, ElementsAre(0, 2, 4));
}

TEST(PlaceThreads, DoesNotPinMoreThreadsThanThereAreProcessors) {
  const ThreadPlacement placement = PlaceThreads(TwoCoresFourThreads(), 5);
  EXPECT_EQ(placement.threads, 5);
  EXPECT_THAT(placement.cpus, IsEmpty());
}

TEST(PlaceThreads, HonoursTheQuota) {
  Topology topology = TwoKinds();
  topology.quota = 1.5;
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 2);
  topology.quota = 0.5;
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 1);
  topology.quota = 3;
  EXPECT_EQ(PlaceThreads(topology, 4).threads, 4);
  EXPECT_THAT(PlaceThreads(topology, 4).cpus, IsEmpty());
}

TEST(PlaceThreads, SpreadsFewThreadsOverTheNodes) {
  const Topology topology = Pinnable({{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 1}, {4, 4, 1}, {5, 5, 1}});
  EXPECT_THAT(PlaceThreads(topology, 4).cpus, ElementsAre(0, 3, 1, 4));
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 6);
}

TEST(PlaceThreads, LeavesThreadsAloneWhereTheSystemDoesNotPin) {
  Topology topology = TwoCoresFourThreads();
  topology.can_pin = false;
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 2);
  EXPECT_THAT(PlaceThreads(topology, 2).cpus, IsEmpty());
}

TEST(MachineTopology, KnowsThisMachine) {
  const Topology topology = MachineTopology();
  ASSERT_FALSE(topology.cpus.empty());
  EXPECT_EQ(topology.cpus.size(), std::thread::hardware_concurrency());
  std::set<int32_t> ids;
  bool any_fast = false;
  for (const Cpu& cpu : topology.cpus) {
    ids.insert(cpu.id);
    any_fast = any_fast || cpu.fast;
  }
  EXPECT_EQ(ids.size(), topology.cpus.size());
  EXPECT_TRUE(any_fast);
  EXPECT_GT(topology.quota, 0);
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), static_cast<int>(topology.cpus.size()));
}

}  // namespace
}  // namespace deltafin
