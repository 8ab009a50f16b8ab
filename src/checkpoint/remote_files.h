// RemoteFiles: bytes of a model's files from somewhere that is no drive of this machine.
//
// The seam between experts that are fetched as they are routed (checkpoint/streamed_experts.h) and whatever brings
// them: the hub (setup/hub_files.h), a folder in tests. Thread-safe: several reads at once are the usual case.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/stream_manifest.h"

namespace deltafin {

class RemoteFiles {
 public:
  virtual ~RemoteFiles() = default;

  // Fills `out` with the bytes of `file` from `offset` on. Blocks; tries again by itself where there is hope, and never
  // for ever. kCancelled; kIo: cannot be reached; kCorrupt: what came is not of the file that the manifest names;
  // kNotFound: it is no longer there. Errors name the file and what to do.
  virtual Status Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) = 0;
  // Every range comes at least twice and is compared (checkpoint/read_twice.h).
  virtual bool reads_twice() const { return false; }
};

using RemoteFilesFactory = std::function<Result<std::unique_ptr<RemoteFiles>>(const StreamManifest&)>;

}  // namespace deltafin
