#include "app/drive_choice.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/units.h"
#include "io/drive_test_file.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

// Less than this of existing files would be read through before anything is known.
constexpr uint64_t kLeastToRead = 256 * kMiB;
// Enough files to choose places from; more only take descriptors.
constexpr size_t kMostFiles = 64;

bool MayWrite(const std::string& folder) { return access(folder.c_str(), W_OK | X_OK) == 0; }

ProbeTarget* FindTarget(std::vector<ProbeTarget>& targets, const std::string& identity) {
  const auto it = std::find_if(targets.begin(), targets.end(),
                               [&](const ProbeTarget& target) { return target.drive.identity == identity; });
  return it == targets.end() ? nullptr : &*it;
}

// Large files of `folder`, by the drive that they really lie on (a model's shards may be links).
Result<std::vector<ProbeTarget>> LargeFiles(const std::string& folder) {
  std::vector<ProbeTarget> found;
  std::map<std::string, MountedDrive> known;  // by folder
  std::error_code failed;
  DFIN_TRY_VOID(DriveOfFolder(folder));  // says what is wrong with a name
  fs::directory_iterator it(folder, failed);
  std::vector<fs::path> paths;
  for (; !failed && it != fs::directory_iterator(); it.increment(failed)) paths.push_back(it->path());
  if (failed) return Fail(ErrorCode::kIo, folder, ": its files cannot be listed: ", failed.message());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    std::error_code ignored;
    const fs::path real = fs::canonical(path, ignored);
    if (ignored || !fs::is_regular_file(real, ignored) || fs::file_size(real, ignored) < kSmallestTestFile) continue;
    const std::string parent = real.parent_path().string();
    if (known.find(parent) == known.end()) {
      DFIN_TRY(known[parent], DriveOfFolder(parent));
    }
    ProbeTarget* target = FindTarget(found, known[parent].identity);
    if (target == nullptr) target = &found.emplace_back(ProbeTarget{folder, known[parent], {}});
    if (target->files.size() < kMostFiles) target->files.push_back(real.string());
  }
  return found;
}

uint64_t TotalBytes(const std::vector<std::string>& files) {
  uint64_t bytes = 0;
  std::error_code failed;
  for (const std::string& file : files) bytes += fs::file_size(file, failed);
  return bytes;
}

Status AddNamed(const std::string& folder, DriveChoice* choice) {
  DFIN_TRY(const MountedDrive drive, DriveOfFolder(folder));
  if (const ProbeTarget* same = FindTarget(choice->targets, drive.identity))
    choice->skipped.push_back({folder, drive.device, "on the same drive as " + same->folder});
  else
    choice->targets.push_back({folder, drive, {}});
  return {};
}

Status AddReadOnly(const std::string& folder, DriveChoice* choice) {
  DFIN_TRY(std::vector<ProbeTarget> found, LargeFiles(folder));
  if (found.empty()) {
    DFIN_TRY(const MountedDrive drive, DriveOfFolder(folder));
    if (FindTarget(choice->targets, drive.identity) == nullptr)
      choice->skipped.push_back({folder, drive.device, "holds no large files to read: name a folder on this drive"});
  }
  for (ProbeTarget& target : found) {
    const uint64_t bytes = TotalBytes(target.files);
    ProbeTarget* named = FindTarget(choice->targets, target.drive.identity);
    if (named != nullptr && named->files.empty() && bytes >= kLeastToRead) {
      named->files = std::move(target.files);
    } else if (named == nullptr && bytes >= kLeastToRead) {
      choice->targets.push_back(std::move(target));
    } else if (named == nullptr) {
      choice->skipped.push_back({folder, target.drive.device,
                                 Cat("holds only ", FormatBytes(bytes), " of large files, at least ",
                                     FormatBytes(kLeastToRead), " are needed: name a folder on this drive")});
    }
  }
  return {};
}

// A folder on `drive` that may be written; "" when there is none.
std::string WritableFolder(const MountedDrive& drive, const std::vector<std::string>& fallbacks) {
  for (const std::string& folder : fallbacks) {
    const Result<MountedDrive> where = DriveOfFolder(folder);
    if (where && where->identity == drive.identity && MayWrite(folder)) return folder;
  }
  return MayWrite(drive.mount_point) ? drive.mount_point : "";
}

Status AddMounted(const std::vector<std::string>& fallbacks, DriveChoice* choice) {
  DFIN_TRY(const std::vector<MountedDrive> drives, MountedDrives());
  for (const MountedDrive& drive : drives) {
    if (drive.read_only) {
      choice->skipped.push_back({drive.mount_point, drive.device, "mounted read-only"});
      continue;
    }
    const std::string folder = WritableFolder(drive, fallbacks);
    if (folder.empty())
      choice->skipped.push_back(
          {drive.mount_point, drive.device, "its mount point may not be written: name a folder on it"});
    else
      choice->targets.push_back({folder, drive, {}});
  }
  return {};
}

}  // namespace

Result<DriveChoice> ChooseDrives(const DriveRequest& request) {
  DriveChoice choice;
  for (const std::string& folder : request.folders) DFIN_TRY_VOID(AddNamed(folder, &choice));
  for (const std::string& folder : request.read_folders) DFIN_TRY_VOID(AddReadOnly(folder, &choice));
  if (request.folders.empty() && request.read_folders.empty()) DFIN_TRY_VOID(AddMounted(request.fallbacks, &choice));
  return choice;
}

}  // namespace deltafin
