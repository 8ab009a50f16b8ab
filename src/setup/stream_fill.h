// stream_fill: brings the dense part of a streamed folder, or all that it still lacks.
//
// Works on a StreamFolder that is open for fetching and any RemoteFiles. Several ranges at once; whatever is on disk
// when it ends, in whatever way, is not fetched again. Functions without state; one call at a time for a folder.
// A shard under its final name is compared with its listed checksum before anything is fetched, unless it was compared
// before and is unchanged. A header goes into its place only when it makes sense; one that does not, come or on disk,
// is fetched again.
// Errors: those of the folder and the remote files; kCorrupt for headers that make no sense however often they come,
// for a file whose checksum is not the listed one although it was fetched twice, and for a shard that somebody else put
// there and that is another; kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/remote_files.h"
#include "checkpoint/stream_folder.h"

namespace deltafin {

struct StreamFillProgress {
  uint64_t bytes_done = 0, bytes_total = 0;  // of what this call fetches
  uint64_t files_done = 0, files_total = 0;  // shards with their final name
  std::string checking = {};                 // the whole shard that is being compared with its checksum
};

struct StreamFillOptions {
  int connections = 8;
  // Called before anything large is fetched, with the bytes to come: looks whether there is room.
  std::function<Status(uint64_t bytes)> on_size = {};
  std::function<void(const StreamFillProgress&)> progress = {};  // on the calling thread, a few times a second
  CancelToken cancel = {};
};

// Headers first, then everything that is no routed expert of the model that the folder's config.json describes. Runs
// may begin afterwards.
Status FillDense(StreamFolder& folder, RemoteFiles& remote, const StreamFillOptions& options);

// The same, then experts, file by file; each whole file is compared with its checksum and gets its final name.
// Afterwards the folder is one like any other.
Status FillAll(StreamFolder& folder, RemoteFiles& remote, const StreamFillOptions& options);

}  // namespace deltafin
