#include "base/cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace deltafin {
namespace {

uint64_t ReadNumber(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word) || word == "max" || word[0] == '-') return kNoCgroupLimit;
  return std::strtoull(word.c_str(), nullptr, 10);
}

// Calls visit(folder) for the group `path` and each of its parents, up to the mount itself.
template <typename Visit>
void ForGroupAndParents(const std::string& mount, std::string path, Visit visit) {
  for (;;) {
    visit(mount + path + "/");
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.erase(slash);
  }
}

// Calls visit(controllers, path) for every hierarchy that the process is in; v2 has no controllers.
template <typename Visit>
void ForHierarchies(const std::string& membership, Visit visit) {
  std::ifstream in(membership);
  std::string line;
  while (std::getline(in, line)) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    visit(line.substr(first + 1, second - first - 1), line.substr(second + 1));
  }
}

bool Names(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

uint64_t RoomIn(const std::string& folder, const char* limit_file, const char* usage_file, const char* cache_key) {
  const uint64_t limit = ReadNumber(folder + limit_file);
  if (limit >= (kNoCgroupLimit >> 2)) return kNoCgroupLimit;
  uint64_t used = ReadNumber(folder + usage_file);
  if (used == kNoCgroupLimit) used = 0;
  std::ifstream stat(folder + "memory.stat");
  std::string key;
  uint64_t value = 0;
  while (stat >> key >> value)
    if (key == cache_key) used -= std::min(used, value);
  return limit - std::min(limit, used);
}

double CoresV2(const std::string& folder) {
  std::ifstream in(folder + "cpu.max");  // "max 100000" or "quota period"
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::numeric_limits<double>::infinity();
  return quota / period;
}

double CoresV1(const std::string& folder) {
  const uint64_t quota = ReadNumber(folder + "cpu.cfs_quota_us");  // -1: no limit
  const uint64_t period = ReadNumber(folder + "cpu.cfs_period_us");
  if (quota == kNoCgroupLimit || quota == 0 || period == kNoCgroupLimit || period == 0)
    return std::numeric_limits<double>::infinity();
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace

uint64_t CgroupMemoryRoom(const std::string& membership, const std::string& mount) {
  uint64_t room = kNoCgroupLimit;
  ForHierarchies(membership, [&](const std::string& controllers, const std::string& path) {
    if (controllers.empty())
      ForGroupAndParents(mount, path, [&](const std::string& folder) {
        room = std::min(room, RoomIn(folder, "memory.max", "memory.current", "inactive_file"));
      });
    if (Names(controllers, "memory"))
      ForGroupAndParents(mount + "/memory", path, [&](const std::string& folder) {
        room = std::min(room, RoomIn(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
      });
  });
  return room;
}

double CgroupCores(const std::string& membership, const std::string& mount) {
  double cores = std::numeric_limits<double>::infinity();
  ForHierarchies(membership, [&](const std::string& controllers, const std::string& path) {
    if (controllers.empty())
      ForGroupAndParents(mount, path, [&](const std::string& folder) { cores = std::min(cores, CoresV2(folder)); });
    // Mounted under all its names ("cpu,cpuacct") with a link for each, or under one.
    if (Names(controllers, "cpu"))
      for (const std::string& name : {std::string("cpu"), controllers})
        ForGroupAndParents(mount + "/" + name, path,
                           [&](const std::string& folder) { cores = std::min(cores, CoresV1(folder)); });
  });
  return cores;
}

}  // namespace deltafin
