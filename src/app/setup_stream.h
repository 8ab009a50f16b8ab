// setup_stream.h: what `deltafin setup` does for a folder whose experts are fetched as they are routed: begin it, bring
// its dense part (--dense-only), or complete it.
//
// Progress on stderr, or as events on stdout. Thread rule: main thread. Errors: those of setup/stream_start.h and
// setup/stream_fill.h; kUnavailable where there is no room.
#pragma once

#include <string>

#include "base/result.h"
#include "setup/http_client.h"
#include "setup/hub_files.h"

namespace deltafin {

struct StreamSetupOptions {
  HubAccess access = {};
  bool revision_given = false;
  std::string to = {};
  bool dense_only = false;
  bool dry_run = false;
  int connections = 8;
  bool json = false, quiet = false;
};

// An exit code.
Result<int> RunStreamSetup(const StreamSetupOptions& options);

}  // namespace deltafin
