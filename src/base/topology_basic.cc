// Darwin: how many cores of which kind; threads cannot be pinned there.
#include <sys/sysctl.h>

#include <algorithm>

#include "base/topology.h"

namespace deltafin {
namespace {

// 0 when the system does not know the name.
int Sysctl(const char* name) {
  int value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 ? value : 0;
}

}  // namespace

Topology MachineTopology() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int fast = Sysctl("hw.perflevel0.physicalcpu");  // performance cores, where there are two kinds
  Topology topology;
  for (int cpu = 0; cpu < all; ++cpu) topology.cpus.push_back({cpu, cpu, 0, fast == 0 || cpu < fast});
  topology.memory_nodes = {0};
  return topology;
}

Status PinThread(std::thread&, int cpu) {
  return Fail(ErrorCode::kUnavailable, "pinning a thread to processor ", cpu, ": this system has no such thing");
}

}  // namespace deltafin
