#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace deltafin {

// Where the system has no cheap figure for free memory, three quarters of what is installed is taken as available.
uint64_t AvailableMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) / 4 * 3 : 0;
}

uint64_t ResidentBytes() { return PeakResidentBytes(); }

uint64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss);  // bytes on Darwin, the only system that links this file
}

MemoryUse MemoryUsed() { return {}; }

std::optional<bool> GetsHugePages() { return std::nullopt; }

int UsableCores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace deltafin
