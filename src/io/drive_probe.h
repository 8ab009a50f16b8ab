// DriveProbe: measures drives: block size by depth, direct against buffered, alone, in pairs, all together.
//
// Reads distinct places of large files through the project's own IoEngine into huge-page memory; nothing is read twice.
// Existing files are only read; where there are none, a file of its own is written to the folder (drive_test_file.h).
// The results become drive profiles (the caller stores them). A drive that cannot be measured is reported as skipped
// with the reason; the others are measured. Blocks for about `seconds` a drive and more for slow ones. Errors:
// kInvalidArgument, kCancelled, kUnavailable (engine), kOutOfMemory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "io/drive_list.h"
#include "io/drive_profile.h"
#include "io/io_engine.h"

namespace deltafin {

struct ProbeTarget {
  std::string folder;              // as the user named it; where a file of its own is written
  MountedDrive drive;              // no two targets are on one drive
  std::vector<std::string> files;  // large files of this drive to read; empty: a file of its own
};

struct ProbeOptions {
  double seconds = 12;  // of reading, a drive
  uint64_t test_file_bytes = uint64_t{4} << 30;
  std::string io = "auto";
  // For tests: what to read with (null: CreateIoEngine) and the time it takes (null: steady).
  std::function<Result<std::unique_ptr<IoEngine>>(int depth)> make_engine = {};
  const Clock* clock = nullptr;
};

struct ProbedDrive {
  std::string folder;
  MountedDrive drive;
  DriveProfile profile;  // bytes_per_second as chosen: direct or buffered
  bool own_file = false;
  bool direct_possible = true;
  double direct_bytes_per_second = 0, buffered_bytes_per_second = 0;
  bool buffered_cached = false;  // the buffered figure is of a cache, not of the drive
  double cached_part = 0;        // of what was to be read buffered, after asking the system to let go of it
  double latency_p50_seconds = 0, latency_p99_seconds = 0;  // at the chosen setting
  uint64_t bytes_read = 0;
};

struct ProbedPair {
  size_t first = 0, second = 0;  // indices into ProbeReport::drives
  double first_bytes_per_second = 0, second_bytes_per_second = 0;
  double part_of_alone = 0;
  bool shares_limit = false;
};

struct SkippedDrive {
  std::string folder, device, reason;
  ErrorCode code = ErrorCode::kUnavailable;
};

struct ProbeReport {
  std::string engine;
  std::vector<ProbedDrive> drives;
  std::vector<ProbedPair> pairs;
  std::vector<double> together;  // by drive; empty with one drive
  std::vector<SkippedDrive> skipped;
};

// Told now and then: what is being measured.
using ProbeProgressFn = std::function<void(const std::string& what)>;

Result<ProbeReport> ProbeDrives(const std::vector<ProbeTarget>& targets, const ProbeOptions& options,
                                const ProbeProgressFn& progress, CancelToken cancel);

}  // namespace deltafin
