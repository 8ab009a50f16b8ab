// registry.h: from the names of the command line (--device, --isa) to a Backend.
//
// Which backends exist is decided where a program is linked: it passes the table. Not a fallback chain: a device that is
// named and cannot be had is an error. Pure function.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace deltafin {

struct BackendOptions {
  std::string device = "auto";  // auto | cpu | reference
  std::string isa = "auto";     // auto | avx2 | avx512 | neon; "reference" takes only auto
  int threads = 1;              // >= 1, the calling thread included
  std::vector<int> cpus = {};   // [threads] processors to run on, the calling thread's first; empty: not pinned
};

// kInvalidArgument for an unknown name (naming the known ones), kUnavailable for an instruction set this build or this
// processor lacks. The first row of the table is what "auto" means.
struct BackendFactory {
  std::string device;
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
};

Result<std::unique_ptr<Backend>> CreateBackend(const std::vector<BackendFactory>& table, const BackendOptions& options);

}  // namespace deltafin
