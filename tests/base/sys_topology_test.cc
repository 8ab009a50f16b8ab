// Machines as Linux describes them, made up file by file.
#include "base/sys_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> UpTo(int count) {
  std::vector<int> cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

class SysTopology : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void Cpu(int cpu, const std::string& siblings) {
    Write("system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list", siblings);
  }
  void OfCpu(int cpu, const std::string& file, const std::string& text) {
    Write("system/cpu/cpu" + std::to_string(cpu) + "/" + file, text);
  }
  Topology Read(const std::vector<int>& allowed) const { return ReadSysTopology(folder_.path(), allowed); }

  static std::vector<int> Ids(const Topology& topology) {
    return Collect(topology, [](const deltafin::Cpu& cpu) { return cpu.id; });
  }
  static std::vector<int> Cores(const Topology& topology) {
    return Collect(topology, [](const deltafin::Cpu& cpu) { return cpu.core; });
  }
  static std::vector<int> Nodes(const Topology& topology) {
    return Collect(topology, [](const deltafin::Cpu& cpu) { return cpu.node; });
  }
  static std::vector<int> Fast(const Topology& topology) {
    return Collect(topology, [](const deltafin::Cpu& cpu) { return cpu.fast ? 1 : 0; });
  }

 private:
  template <typename Of>
  static std::vector<int> Collect(const Topology& topology, Of of) {
    std::vector<int> out;
    for (const deltafin::Cpu& cpu : topology.cpus) out.push_back(of(cpu));
    return out;
  }

  test::TempFolder folder_;
};

TEST_F(SysTopology, OneCore) {
  Write("system/cpu/online", "0");
  Cpu(0, "0");
  Write("system/node/online", "0");
  Write("system/node/node0/cpulist", "0");
  const Topology topology = Read({0});
  EXPECT_THAT(Ids(topology), ElementsAre(0));
  EXPECT_THAT(topology.memory_nodes, ElementsAre(0));
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 1);
}

TEST_F(SysTopology, NothingThereMeansEqualCoresOnOneNode) {
  const Topology topology = Read({0, 1, 5});
  EXPECT_THAT(Ids(topology), ElementsAre(0, 1, 5));
  EXPECT_THAT(Cores(topology), ElementsAre(0, 1, 5));
  EXPECT_THAT(Fast(topology), ElementsAre(1, 1, 1));
  EXPECT_THAT(topology.memory_nodes, ElementsAre(0));
}

TEST_F(SysTopology, NoProcessorAtAllIsStillOne) {
  const Topology topology = Read({});
  EXPECT_EQ(topology.cpus.size(), 1u);
  EXPECT_FALSE(topology.can_pin);
  EXPECT_EQ(PlaceThreads(topology, 0).threads, 1);
}

TEST_F(SysTopology, HyperthreadsShareACore) {
  Write("system/cpu/online", "0-3");
  for (const int cpu : {0, 2}) Cpu(cpu, "0,2");
  // The file's old name.
  for (const int cpu : {1, 3}) OfCpu(cpu, "topology/thread_siblings_list", "1,3");
  EXPECT_THAT(Cores(Read(UpTo(4))), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(PlaceThreads(Read(UpTo(4)), 0).cpus, ElementsAre(0, 1));
}

TEST_F(SysTopology, ACoreKeepsItsNameWhenItsFirstHyperthreadIsNotOurs) {
  Write("system/cpu/online", "0-3");
  for (const int cpu : {0, 1}) Cpu(cpu, "0-1");
  for (const int cpu : {2, 3}) Cpu(cpu, "2-3");
  const Topology topology = Read({1, 2, 3});
  EXPECT_THAT(Cores(topology), ElementsAre(0, 2, 2));
  EXPECT_THAT(PlaceThreads(topology, 0).cpus, ElementsAre(1, 2));
}

TEST_F(SysTopology, TwoNodes) {
  Write("system/cpu/online", "0-3");
  Write("system/node/online", "0-1");
  Write("system/node/has_memory", "0-1");
  Write("system/node/node0/cpulist", "0-1");
  Write("system/node/node1/cpulist", "2-3");
  EXPECT_THAT(Nodes(Read(UpTo(4))), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Read(UpTo(4)).memory_nodes, ElementsAre(0, 1));
  // A process that is bound to one node takes its memory there.
  EXPECT_THAT(Read({2, 3}).memory_nodes, ElementsAre(1));
}

TEST_F(SysTopology, NodesWithoutMemoryOrWithoutProcessorsDoNotCount) {
  Write("system/cpu/online", "0-3");
  Write("system/node/online", "0-3");
  Write("system/node/has_memory", "0,2-3");
  Write("system/node/node0/cpulist", "0-1");
  Write("system/node/node1/cpulist", "2");
  Write("system/node/node2/cpulist", "3");
  Write("system/node/node3/cpulist", "");
  EXPECT_THAT(Read(UpTo(4)).memory_nodes, ElementsAre(0, 2));
}

TEST_F(SysTopology, EfficiencyCoresByCapacity) {
  Write("system/cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) OfCpu(cpu, "cpu_capacity", cpu < 4 ? "430" : cpu < 7 ? "905" : "1024");
  const Topology topology = Read(UpTo(8));
  EXPECT_THAT(Fast(topology), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(PlaceThreads(topology, 0).cpus, ElementsAre(4, 5, 6, 7));
  // Bound to the small ones, they are what there is.
  EXPECT_THAT(Fast(Read(UpTo(4))), ElementsAre(1, 1, 1, 1));
}

TEST_F(SysTopology, EfficiencyCoresByFrequencyAndFavouredCoresAreNone) {
  Write("system/cpu/online", "0-3");
  const char* highest[] = {"5700000", "5500000", "5500000", "4300000"};
  for (int cpu = 0; cpu < 4; ++cpu) OfCpu(cpu, "cpufreq/cpuinfo_max_freq", highest[cpu]);
  EXPECT_THAT(Fast(Read(UpTo(4))), ElementsAre(1, 1, 1, 0));
}

TEST_F(SysTopology, EfficiencyCoresByTheirList) {
  Write("system/cpu/online", "0-5");
  Write("cpu_core/cpus", "0-3");
  Write("cpu_atom/cpus", "4-5");
  for (int cpu = 0; cpu < 6; ++cpu) OfCpu(cpu, "cpufreq/cpuinfo_max_freq", cpu < 4 ? "5700000" : "4600000");
  for (const int cpu : {0, 1}) Cpu(cpu, "0-1");
  for (const int cpu : {2, 3}) Cpu(cpu, "2-3");
  const Topology topology = Read(UpTo(6));
  EXPECT_THAT(Fast(topology), ElementsAre(1, 1, 1, 1, 0, 0));
  EXPECT_THAT(PlaceThreads(topology, 0).cpus, ElementsAre(0, 2));
}

TEST_F(SysTopology, ASpeedThatNotEveryCoreHasDecidesNothing) {
  Write("system/cpu/online", "0-1");
  OfCpu(0, "cpu_capacity", "1024");
  EXPECT_THAT(Fast(Read(UpTo(2))), ElementsAre(1, 1));
}

TEST_F(SysTopology, ProcessorsThatAreOfflineOrNotAllowedDoNotCount) {
  Write("system/cpu/online", "0-1,3");
  EXPECT_THAT(Ids(Read({1, 2, 3})), ElementsAre(1, 3));
}

TEST(ParseCpuList, TakesNumbersAndRanges) {
  EXPECT_THAT(ParseCpuList("0-2,7,5-6\n"), ElementsAre(0, 1, 2, 5, 6, 7));
  EXPECT_THAT(ParseCpuList("3,3,2-4"), ElementsAre(2, 3, 4));
  EXPECT_THAT(ParseCpuList(""), IsEmpty());
  EXPECT_THAT(ParseCpuList("\n"), IsEmpty());
}

TEST(ParseCpuList, LeavesOutWhatIsNoList) {
  EXPECT_THAT(ParseCpuList("x,1,-2,4-,5-3,99999999999999999999,8"), ElementsAre(1, 8));
  EXPECT_THAT(ParseCpuList("0-4000000000"), IsEmpty());
}

}  // namespace
}  // namespace deltafin
