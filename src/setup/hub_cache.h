// hub_cache: a model in the cache that the hub's own tools keep: models--OWNER--NAME/{refs,snapshots,blobs}.
//
// Finds the snapshot of a revision and checks its files against the checksums that their blobs are named by; copies and
// changes nothing. Functions without state. Errors: kNotFound (what is missing, and where it was looked for), kCorrupt,
// kIo, kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace deltafin {

struct HubSnapshot {
  std::string folder;  // for --model
  std::string commit;
};

// `cache` holds the folders of repositories; `revision` is a branch, a tag or a commit.
Result<HubSnapshot> FindHubSnapshot(const std::string& cache, const std::string& repo, const std::string& revision);

struct SnapshotCheck {
  uint64_t files = 0, bytes = 0;
  std::vector<std::string> faults;     // sentences, one a file
  std::vector<std::string> unchecked;  // files that are no links to blobs: nothing says what they should be
};

Result<SnapshotCheck> CheckHubSnapshot(
    const HubSnapshot& snapshot,
    const std::function<void(const std::string& file, uint64_t bytes_done, uint64_t bytes_total)>& progress,
    CancelToken cancel);

}  // namespace deltafin
