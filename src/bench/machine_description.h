// machine_description: what machine a measurement was made on, in words and numbers that two results can be compared
// by.
//
// From /proc and /sys below `root` ("" is this machine; tests give a folder), from the system's name and from the
// limits of this process. No host or user names. Missing files leave fields empty. Functions without state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deltafin {

struct ProgramDescription {
  std::string version, commit, compiler, build;
};

struct MachineDescription {
  ProgramDescription program;
  std::string processor, architecture, system;            // system: kernel's name and release
  int processors = 0;                                     // that this process may use
  double processor_quota = 0;                             // processor time per time that cgroups allow; 0: no limit
  uint64_t memory_bytes = 0, memory_available_bytes = 0;  // the second: when it was asked, cgroups heeded
  uint64_t swap_bytes = 0;
  std::string governor, huge_pages;                         // of processor 0; "always", "madvise", "never"
  std::vector<std::pair<std::string, std::string>> limits;  // of the process: locked memory, open files
};

MachineDescription DescribeMachine(const ProgramDescription& program, const std::string& root = "");
// Over one minute; empty where the system does not tell.
std::optional<double> LoadAverage();

// What differs so that speeds do not simply compare, one phrase each; empty: nothing.
std::vector<std::string> MachineDifferences(const MachineDescription& a, const MachineDescription& b);

}  // namespace deltafin
