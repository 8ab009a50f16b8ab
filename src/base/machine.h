// machine.h: what this process may use of the machine: cores and memory, with cgroup limits honoured.
//
// Linux reads /proc and the cgroup files (v1 and v2); elsewhere the answers come from sysconf. One of machine_linux.cc
// and machine_posix.cc is linked.
#pragma once

#include <cstdint>
#include <optional>

namespace deltafin {

// Physical memory this process could still take without swapping: the smaller of what the kernel calls available and
// what its cgroups leave, plus what the process already has resident.
uint64_t AvailableMemoryBytes();
// Resident memory now, and its peak since the process started.
uint64_t ResidentBytes();
uint64_t PeakResidentBytes();

// What became of this process's own memory: how much of it lies in huge pages, and how much the system has moved out to
// swap. Zeros where the system does not say.
struct MemoryUse {
  uint64_t huge_pages = 0;
  uint64_t swapped = 0;
};
MemoryUse MemoryUsed();
// Whether memory that asks for huge pages gets them, found out with a piece of it. Empty where the system does not say.
std::optional<bool> GetsHugePages();

}  // namespace deltafin
