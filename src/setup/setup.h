// setup: brings a whole model repository into a folder: fetched, verified, published file by file; if asked, its
// experts straight into a set over several drives.
//
// Small files first, then the shards in order. A file has its final name only when it is whole, on the drive and its
// checksum is the listed one. The same call goes on after any interruption, kill -9 included, and ends with the same
// bytes; what is there already is checked and kept, never overwritten. With `pack_to` each shard is packed, read back
// and relieved of its experts (pack with move) while the next one is fetched: two shards of room, beside the dense
// weights that stay. Runs threads of its own; one call at a time on a folder.
// Errors: kInvalidArgument (options; a folder with another download), kUnavailable (space: needed, free and where),
// kCorrupt (checksums that stay wrong, lists that contradict themselves, files that differ from the repository's),
// kNotFound, kUnsupported (another kind of model), kIo, kDeadline, kCancelled (resumable).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "pack/pack.h"
#include "setup/model_source.h"

namespace deltafin {

struct SetupOptions {
  std::string to;
  bool any_model = false;     // also what is no Kimi K3: a drafting model
  bool dry_run = false;       // asks and computes, writes nothing
  bool verify_again = false;  // reads files too that were verified and have the same size and time since
  int connections = 8;
  uint64_t range_bytes = uint64_t{32} << 20;
  // Model, move and hook of it are filled in; no targets: nothing is packed.
  PackOptions pack = {};
  bool keep_shards = false;  // with targets: packed at the end, the shards stay whole
  std::function<void(const std::string&)> on_note = {};
  DiskHook hook = {};  // tests
};

struct SetupProgress {
  std::string phase;  // "reading the file list", "checking", "fetching", "verifying", "packing", ...
  std::string name;   // of the file, where there is one
  uint64_t files_done = 0, files_total = 0;
  uint64_t bytes_done = 0, bytes_total = 0;
  uint64_t bytes_received = 0;  // by this call
};

// Of one folder that setup writes to.
struct SetupSpace {
  std::string folder;
  uint64_t needed = 0, free_bytes = 0;
};

struct SetupReport {
  std::string source;
  bool of_folder = false;  // the source is one: no commit, no listed checksums, every file was compared with its own
  std::string commit;
  std::vector<HubFile> files;
  uint64_t files_fetched = 0, files_there = 0;
  uint64_t files_unread = 0;  // of those there: verified by an earlier call, the same size and time since
  uint64_t files_moved = 0;   // of those there: shards that gave up their experts, so they are not compared
  uint64_t bytes_total = 0, bytes_received = 0;
  std::vector<SetupSpace> space;
  std::optional<PackReport> pack;
};

using SetupProgressFn = std::function<void(const SetupProgress&)>;

Result<SetupReport> FetchModel(ModelSource& source, const SetupOptions& options, const SetupProgressFn& progress,
                               CancelToken cancel);

}  // namespace deltafin
