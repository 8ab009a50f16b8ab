// drive_choice: which drives `deltafin drives` measures, and what it reads on each.
//
// Named folders get a test file of their own; the folders of a model or an expert set are only read, from the large
// files they hold, on whatever drives those lie. With neither, every mounted drive with a folder that may be written.
// What is left out is listed with the reason. Errors: kNotFound (a named folder), kIo, kUnavailable.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "io/drive_probe.h"

namespace deltafin {

struct DriveRequest {
  std::vector<std::string> folders;       // may be written
  std::vector<std::string> read_folders;  // of a model or an expert set: read only
  std::vector<std::string> fallbacks;     // folders tried on a drive that nobody named, before its mount point
};

struct DriveChoice {
  std::vector<ProbeTarget> targets;
  std::vector<SkippedDrive> skipped;
};

Result<DriveChoice> ChooseDrives(const DriveRequest& request);

}  // namespace deltafin
