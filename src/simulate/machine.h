// machine: the described machine of a simulation: drives and the hubs they share, memory, and what the processor does a
// second.
//
// Value types and pure functions; nothing is measured here. Rates are bytes a second, GB are 10^9 bytes. CheckMachine
// refuses what cannot be simulated (no drive, rates that are zero, negative, not finite or absurd, hubs of drives that
// are not there), so that a simulation always ends. Errors: kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin::simulate {

struct Drive {
  double bytes_per_second = 0;
  double first_byte_seconds = 0.0002;  // from asking to the first byte; reads that queue hide it
  int hub = -1;                        // index into Machine::hub_rates, -1: a port of its own
};

struct Machine {
  std::vector<Drive> drives;
  std::vector<double> hub_rates;  // what the drives of one hub deliver together at most
  uint64_t ram_bytes = 0;
  double memory_bytes_per_second = 0;  // all threads reading
  double flops_per_second = 0;         // all threads multiplying and adding, float32

  double summed_rate() const;
  size_t fastest() const;
};

inline constexpr size_t kMostDrives = 64;
inline constexpr double kLeastRate = 1e5;  // 0.1 MB/s
inline constexpr double kMostRate = 1e15;
inline constexpr double kLeastFlops = 1e6, kMostFlops = 1e18;

Status CheckMachine(const Machine& machine);

// "13.6,7.1": GB/s, one a drive. "7.1+5.4@8": the drives of these rates share a hub of 8 GB/s.
Result<std::vector<Drive>> ParseDrives(std::string_view text);
Status AddHub(Machine& machine, std::string_view text);

// Changes of a machine: "+drive:7.1", "-drive:5.4", "+ram:64GB", "-ram:32GB".
Status ApplyChange(Machine& machine, std::string_view change);

}  // namespace deltafin::simulate
