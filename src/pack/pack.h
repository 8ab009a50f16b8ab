// pack: writes the routed experts of a checkpoint as an expert set over several folders, one a drive.
//
// Reads shards in the order of their bytes, writes each record's pieces to all drives, and publishes the set at the
// end: nobody ever sees half a set. A journal in the first folder makes it resumable after any interruption (the same
// options must be given); a finished set that is packed again with more shards present is extended. With `move` a shard
// gives up its experts only after all of them were read back from the drives and compared; its other tensors stay, with
// a note of the set, so that no later call begins another set without them. Folders are locked: a second writer is
// refused. Runs threads of its own. Errors: kInvalidArgument (folders, options), kUnavailable (space: needed and free,
// per drive; another pack at work), kCorrupt (a source with a scale of 255, read-back that differs, a set of another
// model, moved experts that these folders do not have), kIo (also folders that are not there), kCancelled (resumable).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "pack/disk.h"
#include "pack/folder_locks.h"
#include "spec/model_spec.h"

namespace deltafin {

struct PackTarget {
  std::string folder;           // made if it does not exist, in a parent that does
  double bytes_per_second = 0;  // from its profile; 0 = not measured: equal shares if any is
};

struct PackOptions {
  std::string model;
  std::vector<PackTarget> targets;
  std::string state_folder;  // header index, pointer file when the model folder cannot be written
  // Room for second copies, in all. 0 keeps those that there are, less than they take is refused; not for Rebalance.
  uint64_t replica_bytes = 0;
  std::vector<uint64_t> usage = {};  // [moe layers * experts] how often each was used; empty = not known
  // Asked once the model is open, if `usage` is empty and there are copies to choose; may answer with nothing.
  std::function<std::vector<uint64_t>(const ModelSpec& spec, uint64_t fingerprint)> usage_of = {};
  bool compact = false;  // for a new set
  bool move = false;     // Pack only
  std::string io = "auto";
  // Written between two entries in the journal: at most this much is written again after an interruption.
  uint64_t batch_bytes = uint64_t{256} << 20;
  uint64_t checksum_chunk = 0;  // of a new set; whole pages; 0: a sixteenth of a record, at most 1 MiB
  // Called for everything the user should know, as soon as it is known; the report has all of it too.
  std::function<void(const std::string&)> on_note = {};
  // Pack only: of the caller, who may hold the model folder already (setup does); the pack's are added to them. Outlives
  // the call; null: the pack's own, which end with it.
  FolderLocks* locks = nullptr;
  DiskHook hook = {};  // tests
};

struct PackProgress {
  uint64_t records_done = 0, records_total = 0;
  uint64_t bytes_done = 0, bytes_total = 0;  // written, of all drives
  uint64_t bytes_resumed = 0;                // of those, written by an earlier call
  std::string phase;                         // "packing", "verifying model-00003-of-00096.safetensors", "publishing"
};

struct PackReport {
  std::vector<std::string> folders;
  std::string pointer_file;  // "" when none could be written; a note says why
  uint64_t generation = 0;
  uint64_t records = 0, records_missing = 0;
  uint64_t record_bytes = 0;   // of the largest
  uint64_t bytes_written = 0;  // by this call
  uint64_t replica_records = 0;
  uint64_t matrices_whole = 0;  // with `compact`: that keep their scales
  uint64_t shards_emptied = 0;  // with `move`, by this call
  std::vector<std::string> notes;
};

using PackProgressFn = std::function<void(const PackProgress&)>;

Result<PackReport> Pack(const PackOptions& options, const PackProgressFn& progress, CancelToken cancel);

// Spreads an existing set over `options.targets` (some new, some as before); folders of the set that are not among them
// are emptied at the end. `from` are the set's present folders. Moves only what must move. Resumable.
Result<PackReport> Rebalance(const PackOptions& options, const std::vector<std::string>& from,
                             const PackProgressFn& progress, CancelToken cancel);

}  // namespace deltafin
