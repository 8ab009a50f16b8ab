// sys_topology: the processors and memory nodes that Linux describes below /sys/devices.
//
// Pure function of the files below `folder` (/sys/devices) and of the processors that the process may run on
// (`allowed`; affinity and cpusets). Processors that are offline do not count. Missing or odd files never fail: without
// topology every processor is a core of its own, without nodes there is one, without speeds all are equally fast.
//
// Two kinds of cores: those of system/cpu/cpuN that /sys/devices/cpu_atom names (Intel's efficiency cores), else those
// whose cpu_capacity (ARM, newer x86), else whose highest frequency, is below four fifths of the best; cores that
// merely boost a little higher than others (favoured cores) stay of one kind. Source: Documentation/ABI of the kernel,
// sysfs-devices-system-cpu and sysfs-devices-node.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/topology.h"

namespace deltafin {

// Without quota; can_pin is true.
Topology ReadSysTopology(const std::string& folder, std::span<const int> allowed);

// "0-3,8\n": ascending, each once; what is not a list of numbers below 1,048,576 is left out.
std::vector<int> ParseCpuList(const std::string& text);

}  // namespace deltafin
