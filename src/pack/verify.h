// verify: reads a whole expert set, or the experts in the shards, and names every record that is not what was written.
//
// Expert sets are checked against their checksums, padding and unused bytes included; second copies too, and every
// drive's manifest and index. Shards have no checksums of their own: where the folder has a list of them
// (checkpoint/model_files.h) its files are hashed and compared with it; their experts are checked for scales of 255,
// and against the expert set when there is one. Reads at background priority, as fast as the drives deliver. Repair
// rewrites only bytes that are wrong, from the second copy or the shards, and only when the source's own checksum is
// right; what was rewritten is read again. A drive of the set that is not among the folders is a fault that is told;
// what the others hold is checked. One call at a time. Errors: kInvalidArgument (also folders of two sets), kNotFound
// and kIo (nothing can be read at all), kUnavailable (repair, while a pack is at work), kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/ids.h"
#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

struct VerifyOptions {
  std::string model;
  std::vector<std::string> experts;  // folders of the set; empty: verify the shards
  std::string state_folder;
  bool repair = false;
  std::string io = "auto";
  DiskHook hook = {};  // tests
};

struct BadRecord {
  ExpertKey key{-1, -1};  // layer -1: a manifest, an index, a shard, a drive's folder
  bool replica = false;
  std::string file;
  uint64_t offset = 0, bytes = 0;  // in that file; no bytes: all of it, or a folder
  std::string what;                // "checksum differs", "read failed: ...", "padding is not zero"
  bool repaired = false;
  std::string repair_note;  // from where, or why not
};

struct VerifyReport {
  uint64_t records = 0;
  uint64_t records_partly = 0;      // of those, with a part on a drive that is missing: that part was not checked
  uint64_t records_unreadable = 0;  // of those, without a second copy of that part
  uint64_t records_absent = 0;      // shards only: that they do not hold, so they were not checked
  // Shards only, where their folder has a list: files that were compared with it, of those that differ, that are not
  // there, shards that gave up their experts (neither was compared).
  bool listed = false;
  uint64_t files_compared = 0, files_bad = 0, files_absent = 0, files_moved = 0;
  bool compared_with_set = false;  // shards only
  uint64_t bytes = 0;
  uint64_t bad = 0, repaired = 0;
  double seconds = 0;
  std::vector<std::string> notes;
};

using BadRecordFn = std::function<void(const BadRecord&)>;
using VerifyProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// `on_bad` is called for each range that is bad, as it is found; `progress` with bytes done and in all.
Result<VerifyReport> Verify(const VerifyOptions& options, const BadRecordFn& on_bad, const VerifyProgressFn& progress,
                            CancelToken cancel);

}  // namespace deltafin
