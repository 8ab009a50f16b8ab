#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace deltafin {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

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

uint64_t ReadNumber(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word) || word == "max") return kNoLimit;
  return std::strtoull(word.c_str(), nullptr, 10);
}

// Smallest (limit - usage) over this folder and its parents; kNoLimit when nothing limits.
uint64_t RoomInCgroup(const std::string& root, std::string path, const char* limit_file, const char* usage_file,
                      const char* cache_key) {
  uint64_t room = kNoLimit;
  for (;;) {
    const std::string folder = root + path + "/";
    const uint64_t limit = ReadNumber(folder + limit_file);
    if (limit < (kNoLimit >> 2)) {
      uint64_t used = ReadNumber(folder + usage_file);
      if (used == kNoLimit) used = 0;
      // Page cache that can be dropped counts as room.
      std::ifstream stat(folder + "memory.stat");
      std::string key;
      uint64_t value = 0;
      while (stat >> key >> value)
        if (key == cache_key) used -= std::min(used, value);
      room = std::min(room, limit - std::min(limit, used));
    }
    if (path.empty() || path == "/") return room;
    path.erase(path.rfind('/'));
  }
}

uint64_t RoomInCgroups() {
  uint64_t room = kNoLimit;
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      room = std::min(room, RoomInCgroup("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"));
    if ((',' + controllers + ',').find(",memory,") != std::string::npos)
      room = std::min(room, RoomInCgroup("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                         "memory.usage_in_bytes", "total_inactive_file"));
  }
  return room;
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  const uint64_t system = ProcField("/proc/meminfo", "MemAvailable");
  uint64_t limit = kNoLimit;
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    limit =
        address_space.rlim_cur - std::min<uint64_t>(address_space.rlim_cur, ProcField("/proc/self/status", "VmSize"));
  return std::min({system, RoomInCgroups(), limit}) + ResidentBytes();
}

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS"); }
uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM"); }

int UsableCores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream v2("/sys/fs/cgroup/cpu.max");  // "max 100000" or "quota period"
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0)
    cores = std::min(cores, static_cast<int>((std::stod(quota) + period - 1) / period));
  return std::max(1, cores);
}

}  // namespace deltafin
