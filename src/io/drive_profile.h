// DriveProfile: what was measured about a drive, kept in the state folder under the drive's identity.
//
// `deltafin drives` writes it, pack and the engine read it. Identity: file system UUID or device number plus the
// folder's device size, so that a profile follows the drive, not the mount point. One JSON file a drive, in the folder
// "drives" of the state folder (docs/TUNING.md). A value type and plain functions. Damaged or foreign files are ignored
// (and said so by `drives`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deltafin {

struct DriveMeasurement {
  uint64_t block_bytes = 0;
  int depth = 0;
  bool direct = true;
  double bytes_per_second = 0;
  double latency_p50_seconds = 0, latency_p99_seconds = 0;
};

struct DriveProfile {
  std::string identity;  // of the device: see DriveIdentity
  std::string device;    // "nvme0n1", for people
  std::string model;     // of the hardware; "" when unknown
  int64_t measured_unix_seconds = 0;
  double bytes_per_second = 0;  // alone, best setting
  uint64_t block_bytes = 0;     // of the best setting
  int depth = 0;
  bool direct = true;
  std::vector<DriveMeasurement> grid;
  // Measured together with other drives: identities, and what this one delivered then. Two drives behind one hub share.
  struct Together {
    std::vector<std::string> others;
    double bytes_per_second = 0;
  };
  std::vector<Together> together;
};

// Names the device under `folder` (io/drive_list.h). kNotFound, kIo.
Result<std::string> DriveIdentity(const std::string& folder);
// Where the profile of a drive is kept.
std::string DriveProfilePath(const std::string& state_folder, const std::string& identity);
std::string DriveProfileText(const DriveProfile& profile);
// The list of cells in it, which `drives --json` shows too.
Json DriveGridJson(const std::vector<DriveMeasurement>& grid);
// kCorrupt, kUnsupported (another version). `what` names the text in errors.
Result<DriveProfile> ParseDriveProfile(const std::string& text, const std::string& what);
// Nothing when there is no usable profile; *problem, if given, says what is wrong with one that is there.
std::optional<DriveProfile> LoadDriveProfile(const std::string& state_folder, const std::string& identity,
                                             std::string* problem = nullptr);
// Makes the folder if need be; replaces an older profile in one step; keeps the newest kMaxDriveProfiles.
inline constexpr size_t kMaxDriveProfiles = 64;
Status StoreDriveProfile(const std::string& state_folder, const DriveProfile& profile);
// Measured rates of `folders`, for shares: what each delivered when all were read together, if that was measured, else
// alone; 0 where there is no profile. Folders on one drive get equal parts of its rate; one that is yet to be made
// counts as on the drive of the nearest folder above it.
std::vector<double> ProfiledRates(const std::string& state_folder, const std::vector<std::string>& folders);
// Whether the drive under `folder` was measured to be faster through the page cache.
bool ProfiledBuffered(const std::string& state_folder, const std::string& folder);

}  // namespace deltafin
