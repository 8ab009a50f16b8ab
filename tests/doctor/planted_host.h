// planted_host.h: the machine of the test with faults of our choice.
//
// What is not planted is a healthy machine, whatever the real one is like, except for files and folders, which are
// looked at as they are.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "doctor/host.h"

namespace deltafin::test {

class PlantedHost final : public Host {
 public:
  std::map<std::string, std::string> kernel_texts = {
      {"/proc/meminfo", "MemTotal:       67108864 kB\nSwapTotal:       1048576 kB\nSwapFree:        1048576 kB"},
      {"/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1048576 0 -2"},
      {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"},
      {"/sys/block/disk0/queue/rotational", "0"},
      {"/sys/block/disk0/removable", "0"}};
  std::string release = "6.8.0";
  std::vector<std::string> instruction_sets = SystemHost().InstructionSets();
  int processors = 2, threads = 2;
  uint64_t available = uint64_t{8} << 30;
  uint64_t control_group = kNoHostLimit;
  std::map<HostLimit, uint64_t> limits = {{HostLimit::kOpenFiles, 1024},
                                          {HostLimit::kLockedBytes, uint64_t{8} << 20},
                                          {HostLimit::kAddressSpace, kNoHostLimit}};
  std::string uring_refusal;
  uint32_t user = 1000;
  std::map<std::string, uint32_t> owners;  // others belong to `user`
  std::map<std::string, uint32_t> modes;   // others have those that they have
  std::set<std::string> unreadable, unwritable;
  MountedDrive drive{"uuid:1:2", "disk0", "A Drive", "/mnt", "ext4", true, false, ""};
  std::vector<MountedDrive> more_drives;
  SpaceFacts space{uint64_t{1} << 40, uint64_t{1} << 39};
  uint64_t alignment = 512;
  int64_t now = 1'800'000'000;

  std::optional<std::string> KernelText(const std::string& path) const override {
    const auto it = kernel_texts.find(path);
    return it == kernel_texts.end() ? std::nullopt : std::optional(it->second);
  }
  std::string KernelName() const override { return "Linux"; }
  std::string KernelRelease() const override { return release; }
  std::vector<std::string> InstructionSets() const override { return instruction_sets; }
  int PhysicalProcessors() const override { return processors; }
  int UsableThreads() const override { return threads; }
  uint64_t AvailableMemory() const override { return available; }
  uint64_t ControlGroupMemory() const override { return control_group; }
  uint64_t Limit(HostLimit limit) const override { return limits.at(limit); }
  Status UringWorks() const override {
    if (uring_refusal.empty()) return {};
    return Fail(ErrorCode::kUnavailable, uring_refusal);
  }
  uint32_t UserId() const override { return user; }
  PathFacts Look(const std::string& path) const override {
    PathFacts facts = SystemHost().Look(path);
    const auto owner = owners.find(path);
    facts.owner = owner == owners.end() ? user : owner->second;
    const auto mode = modes.find(path);
    if (mode != modes.end()) facts.mode = mode->second;
    return facts;
  }
  bool MayRead(const std::string& path) const override { return !unreadable.contains(path); }
  bool MayWrite(const std::string& path) const override { return !unwritable.contains(path); }
  Result<MountedDrive> DriveOf(const std::string&) const override { return drive; }
  std::vector<MountedDrive> Drives() const override {
    std::vector<MountedDrive> drives = more_drives;
    drives.push_back(drive);
    return drives;
  }
  std::optional<SpaceFacts> Space(const std::string&) const override { return space; }
  Result<uint64_t> DirectAlignment(const std::string&) const override { return alignment; }
  int64_t UnixSeconds() const override { return now; }
};

}  // namespace deltafin::test
