// cold_files: makes the system forget what it keeps of files in memory, so that a measurement starts cold.
//
// Asks file by file (no privilege needed), or drops the whole page cache (root). What a drive, a controller or the host
// of a virtual machine keeps is out of reach. Never writes to the files. Functions without state. Errors: kNotFound,
// kIo (a folder), kUnavailable (dropping everything where that is not allowed).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace deltafin {

struct ForgottenFiles {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t still_cached = 0;  // bytes; only where the system tells, which takes a moment for each 100 GB
};

// The regular files of each folder itself, not of folders inside it; each file once.
Result<ForgottenFiles> ForgetFiles(const std::vector<std::string>& folders);
// Pages, names and inodes of everything.
Status DropAllCaches();

}  // namespace deltafin
