// topology: which processors this process may run on, which of them share a core, how fast they are, and which memory
// nodes lie behind them; and where the threads of a pool go.
//
// MachineTopology() asks the system: topology_linux.cc reads /sys (base/sys_topology.h), topology_basic.cc knows counts
// only and cannot pin; one of them is linked. PlaceThreads() is a pure function of what it is given. Nothing is cached.
// Thread rule: any thread. Errors: PinThread only.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace deltafin {

// A processor as the system counts them: with hyperthreading, one of several of a core.
struct Cpu {
  int32_t id = 0;
  int32_t core = 0;  // equal for those that share a core
  int32_t node = 0;  // of memory
  bool fast = true;  // false: an efficiency core of a machine that also has faster ones for us
};

struct Topology {
  std::vector<Cpu> cpus;                                   // that this process may run on, by id; never empty
  std::vector<int> memory_nodes;                           // that it may take memory from and that have one of `cpus`
  double quota = std::numeric_limits<double>::infinity();  // processor time per time that its cgroups allow
  bool can_pin = false;
};

Topology MachineTopology();

struct ThreadPlacement {
  int threads = 1;
  std::vector<int> cpus;  // [threads] ids, the first for the calling thread; empty: threads are not to be pinned
};

// `threads` 0: one for each fast core, at most what the quota allows. Each thread gets a core of its own, fast ones
// first and evenly over the nodes; second hyperthreads come last. More threads than processors or quota are not pinned:
// then only the system can share the processors out.
ThreadPlacement PlaceThreads(const Topology& topology, int threads);
// The same for this machine, number only.
int DefaultThreads();

// From now on the thread runs on this processor only. kUnavailable with the reason.
Status PinThread(std::thread& thread, int cpu);

}  // namespace deltafin
