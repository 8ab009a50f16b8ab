#include "pack/target_folders.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"
#include "pack/disk.h"
#include "pack/journal.h"

namespace deltafin {

Status CheckTargets(const std::vector<PackTarget>& targets) {
  if (targets.empty())
    return Fail(ErrorCode::kInvalidArgument, "folders of the set: expected at least one folder, got none");
  constexpr size_t kMostDrives = 64;
  if (targets.size() > kMostDrives)
    return Fail(ErrorCode::kInvalidArgument, "folders of the set: expected at most ", kMostDrives, " folders, got ",
                targets.size());
  std::set<std::string> folders;
  for (const PackTarget& target : targets) {
    DFIN_TRY_VOID(CheckFolderCanBe(target.folder));
    if (std::string folder = FullPath(target.folder); !folders.insert(folder).second)
      return Fail(ErrorCode::kInvalidArgument, "folders of the set: ", folder,
                  ": expected each folder once, got it twice");
  }
  return {};
}

Result<std::vector<std::string>> PrepareFolders(const std::vector<PackTarget>& targets) {
  DFIN_TRY_VOID(CheckTargets(targets));
  std::vector<std::string> folders;
  for (const PackTarget& target : targets) {
    DFIN_TRY_VOID(MakeWritableFolder(target.folder));
    folders.push_back(FullPath(target.folder));
  }
  return folders;
}

std::vector<std::string> SharedDevices(const std::vector<std::string>& folders) {
  std::map<uint64_t, std::vector<std::string>> devices;
  for (const std::string& folder : folders)
    if (const Result<DeviceSpace> space = SpaceOf(folder)) devices[space->device].push_back(folder);
  std::vector<std::string> notes;
  for (const auto& [device, on_it] : devices) {
    if (on_it.size() < 2) continue;
    std::string names;
    for (const std::string& folder : on_it) names += (names.empty() ? "" : ", ") + folder;
    notes.push_back(names + ": on one device: they share its speed, and second copies there do not survive it");
  }
  return notes;
}

Status CheckNothingInTheWay(const std::vector<std::string>& folders, std::string_view prefix) {
  for (const std::string& folder : folders)
    for (const std::string& name : ListFiles(folder, prefix))
      return Fail(ErrorCode::kInvalidArgument, folder, "/", name,
                  ": is in the way: expected no file of that name, got one that no expert set and no unfinished pack "
                  "in these folders knows. It may be the only copy of experts, of another set or of an unfinished one "
                  "whose ",
                  kJournalName,
                  " lies on a drive that is not mounted or was not named: keep it, and name the folders that it "
                  "belongs to, or an empty folder");
  return {};
}

Status CheckSpace(const std::vector<SpaceNeed>& needs, const std::string& freed_in, uint64_t freed) {
  struct Device {
    uint64_t needed = 0, free_bytes = 0;
    std::string folders;
  };
  std::map<uint64_t, Device> devices;
  for (const SpaceNeed& need : needs) {
    DFIN_TRY(const DeviceSpace space, SpaceOf(need.folder));
    Device& device = devices[space.device];
    device.needed += need.bytes;
    device.free_bytes = space.free_bytes;
    device.folders += (device.folders.empty() ? "" : ", ") + need.folder;
  }
  if (freed > 0) {
    const Result<DeviceSpace> space = SpaceOf(freed_in);
    const auto it = space ? devices.find(space->device) : devices.end();
    if (it != devices.end()) it->second.needed -= std::min(it->second.needed, freed);
  }
  std::string short_of;
  for (const auto& [number, device] : devices)
    if (device.needed > device.free_bytes)
      short_of += Cat(short_of.empty() ? "" : "; ", device.folders, ": ", FormatBytes(device.needed), " needed, ",
                      FormatBytes(device.free_bytes), " free");
  if (short_of.empty()) return {};
  return Fail(ErrorCode::kUnavailable, "not enough space: ", short_of,
              ": free some, or give more folders (shares follow measured speed, not free space)");
}

}  // namespace deltafin
