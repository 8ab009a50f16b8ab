// cgroup: what the control groups of this process (Linux, v1 and v2) let it have. Nothing is cached.
//
// A limit of any parent holds for its children, so each question looks at the group and all its parents. Pure functions
// of the files they are given: `membership` is /proc/self/cgroup, `mount` is /sys/fs/cgroup. Missing files limit
// nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace deltafin {

inline constexpr uint64_t kNoCgroupLimit = std::numeric_limits<uint64_t>::max();

// Bytes that may still be taken; page cache that can be dropped counts as room. kNoCgroupLimit when nothing limits.
uint64_t CgroupMemoryRoom(const std::string& membership, const std::string& mount);
// Processor time per time, 2.5 for two and a half cores; infinity when nothing limits.
double CgroupCores(const std::string& membership, const std::string& mount);

}  // namespace deltafin
