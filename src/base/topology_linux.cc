#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/cgroup.h"
#include "base/sys_topology.h"

namespace deltafin {
namespace {

constexpr int kMostCpus = 1 << 16;

// Affinity, which holds what cpusets leave. Asks with larger and larger masks: the kernel refuses one below its own
// size.
std::vector<int> AllowedCpus() {
  std::vector<int> allowed;
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < most; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) allowed.push_back(cpu);
    CPU_FREE(set);
    if (known) break;
  }
  return allowed;
}

// Leaves the nodes that cpusets let this process take memory from; all where the kernel does not say.
void KeepAllowedNodes(std::vector<int>& nodes) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  unsigned long mask[1024 / kBits] = {};
  if (syscall(SYS_get_mempolicy, nullptr, mask, sizeof mask * CHAR_BIT, nullptr, MPOL_F_MEMS_ALLOWED) != 0) return;
  const auto is_barred = [&](int node) {
    const auto n = static_cast<size_t>(node);
    return n / kBits >= std::size(mask) || (mask[n / kBits] >> n % kBits & 1) == 0;
  };
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), is_barred), nodes.end());
}

}  // namespace

Topology MachineTopology() {
  Topology topology = ReadSysTopology("/sys/devices", AllowedCpus());
  KeepAllowedNodes(topology.memory_nodes);
  topology.quota = CgroupCores("/proc/self/cgroup", "/sys/fs/cgroup");
  return topology;
}

Status PinThread(std::thread& thread, int cpu) {
  cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpu) + 1);
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpu) + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const int error = pthread_setaffinity_np(thread.native_handle(), bytes, set);
  CPU_FREE(set);
  if (error == 0) return {};
  return Fail(ErrorCode::kUnavailable, "pinning a thread to processor ", cpu, ": ", std::strerror(error));
}

}  // namespace deltafin
