#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/aligned_buffer.h"
#include "base/cgroup.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace deltafin {
namespace {

constexpr const char* kMembership = "/proc/self/cgroup";
constexpr const char* kMount = "/sys/fs/cgroup";

// "<key>:   <n> kB" of a /proc file, in bytes; 0 when absent.
uint64_t ProcField(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.compare(0, key.size() + 1, key + ":") != 0) continue;
    return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  const uint64_t system = ProcField("/proc/meminfo", "MemAvailable");
  uint64_t limit = kNoCgroupLimit;
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    limit =
        address_space.rlim_cur - std::min<uint64_t>(address_space.rlim_cur, ProcField("/proc/self/status", "VmSize"));
  return std::min({system, CgroupMemoryRoom(kMembership, kMount), limit}) + ResidentBytes();
}

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS"); }
uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM"); }

MemoryUse MemoryUsed() {
  constexpr const char* kFile = "/proc/self/smaps_rollup";
  return {ProcField(kFile, "AnonHugePages"), ProcField(kFile, "Swap")};
}

std::optional<bool> GetsHugePages() {
  const uint64_t before = MemoryUsed().huge_pages;
  const Result<AlignedBuffer> buffer = AlignedBuffer::Create(AlignedBuffer::kAlignment);
  if (!buffer) return false;
  buffer->data()[0] = std::byte{1};
  return MemoryUsed().huge_pages > before;
}

int UsableCores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  const double limit = std::ceil(CgroupCores(kMembership, kMount));
  if (limit < cores) cores = static_cast<int>(limit);
  return std::max(1, cores);
}

}  // namespace deltafin
