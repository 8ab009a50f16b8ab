#include "app/bench_targets.h"

#include <algorithm>
#include <filesystem>

#include "base/units.h"
#include "io/drive_list.h"

namespace deltafin {

BenchTargets::BenchTargets(const std::vector<CommonOptions>& settings, bool drop_caches) : drop_caches_(drop_caches) {
  for (const CommonOptions& options : settings) {
    for (const std::string& folder : {options.model, options.dense, options.draft_model}) Add(folder);
    for (const std::string& folder : options.experts) Add(folder);
  }
}

void BenchTargets::Add(const std::string& folder) {
  std::error_code failed;
  if (folder.empty() || !std::filesystem::is_directory(folder, failed)) return;
  const std::string path = std::filesystem::canonical(folder, failed).string();
  if (!failed && std::find(folders_.begin(), folders_.end(), path) == folders_.end()) folders_.push_back(path);
}

std::vector<BenchDevice> BenchTargets::Devices(const std::vector<OwnDrive>& drives) {
  for (const OwnDrive& drive : drives) Add(drive.name);
  std::vector<BenchDevice> out;
  for (const std::string& folder : folders_) {
    const Result<MountedDrive> drive = DriveOfFolder(folder);
    if (!drive) continue;
    const auto same = std::find_if(out.begin(), out.end(), [&](const BenchDevice& device) {
      return drive->counters.empty() ? device.mount_point == drive->mount_point : device.counters == drive->counters;
    });
    if (same != out.end()) {
      same->folders.push_back(folder);
      continue;
    }
    out.push_back({drive->device, drive->model, drive->file_system, drive->mount_point, {folder}, drive->counters});
  }
  return out;
}

Status BenchTargets::MakeCold() {
  DFIN_TRY(last_, ForgetFiles(folders_));
  most_still_cached_ = std::max(most_still_cached_, last_.still_cached);
  return drop_caches_ ? DropAllCaches() : Status();
}

std::string BenchTargets::Describe() const {
  std::string text = Cat(
      "a process of its own for every run, nothing kept between runs; before it the system was asked to forget the "
      "model's ",
      last_.files, " files (", FormatBytes(last_.bytes), "), ", FormatBytes(most_still_cached_), " stayed in memory");
  if (drop_caches_) text += "; then the whole page cache was dropped";
  return text + "; what a drive or the host of a virtual machine keeps is out of reach";
}

std::string BenchTargets::Warning() const {
  if (drop_caches_ || most_still_cached_ * 100 <= last_.bytes) return "";
  return Cat(FormatBytes(most_still_cached_),
             " of the model's files stayed in the page cache: --drop-caches (as root) drops it all");
}

}  // namespace deltafin
