// pack_dense: writes the dense weights of a checkpoint in 12 bits where that is smaller, bit for bit, into a folder.
//
// One file a layer and one for the head. Every matrix is decoded again and compared with the shard before its unit is
// written; the manifest that makes the folder usable comes last, at once. Resumable after any interruption: finished
// units whose checksums hold are kept, so a damaged folder is mended by packing again. Memory: the largest unit once
// packed (1.8 GB for K3) and two pieces of a shard. Shards are only read. The folders are locked: a second writer is
// refused. Runs threads of its own. Errors: kInvalidArgument (folder), kUnavailable (space; another pack at work),
// kCorrupt (a folder of another model), kUnsupported (a newer manifest), kIo, kCancelled (resumable), and those of
// Checkpoint::Open.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

struct PackDenseOptions {
  std::string model;
  std::string to;            // made if it does not exist, in a parent that does
  std::string state_folder;  // header index; "" keeps none
  std::string io = "auto";
  int threads = 0;                                       // 0: every usable core, at most 8
  uint64_t piece_bytes = uint64_t{32} << 20;             // of a shard, in memory at once; two of them
  std::function<void(const std::string&)> on_note = {};  // what the user should know, as soon as it is known
  DiskHook hook = {};                                    // tests
};

struct PackDenseProgress {
  std::string phase;                         // "checking", "packing", "publishing"
  int32_t units_done = 0, units_total = 0;   // layers and the head
  uint64_t bytes_done = 0, bytes_total = 0;  // of the source
};

struct PackDenseReport {
  std::string folder;
  int32_t units = 0, units_kept = 0;   // kept: written by an earlier call
  uint64_t source_bytes = 0;           // BF16 and F32 in the shards, without the embedding table
  uint64_t bytes = 0;                  // of all files but the manifest
  uint64_t elements = 0, escapes = 0;  // of the matrices in 12 bits
  int64_t rows = 0, whole_rows = 0;    // ... whole: that stayed BF16
  uint64_t bytes_written = 0;          // by this call
};

using PackDenseProgressFn = std::function<void(const PackDenseProgress&)>;

Result<PackDenseReport> PackDense(const PackDenseOptions& options, const PackDenseProgressFn& progress,
                                  CancelToken cancel);

}  // namespace deltafin
