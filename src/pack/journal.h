// PackJournal: what an unfinished pack or rebalance has finished so far, in the first target folder.
//
// A header says what was asked for; entries follow, each with its own checksum, and are added only after the data they
// speak of is on the drives. Reading stops at the first entry that is torn or damaged: everything after it is done
// again. Layout: docs/FORMAT.md. Not thread-safe. Errors: kIo, kUnavailable (no space), kCorrupt (the header).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "checkpoint/expert_set_index.h"
#include "pack/disk.h"

namespace deltafin {

inline constexpr const char* kJournalName = "deltafin-pack.journal";

enum class JournalKind : uint32_t {
  kRecord = 1,   // a record's pieces are on the drives
  kCopy = 2,     // a second copy's pieces are
  kEmptied = 3,  // a shard is about to give up its experts: until the set is published they are only here
  kMoved = 4,    // rebalance: pieces of this many slots are at their new place
};

struct JournalEntry {
  JournalKind kind = JournalKind::kRecord;
  uint32_t position = 0;  // kRecord, kCopy: in ExpertSetIndex::entries; kEmptied: 0; kMoved: table * 2 + replica
  uint32_t slot = 0;      // kRecord, kCopy: slot; kMoved: slots that are done
  uint32_t whole = 0;     // kRecord: matrices that keep their scales, names the table
  ScaleBases bases = kAllScalesWhole;  // kRecord
  uint64_t hash = 0;                   // kRecord
  std::vector<uint64_t> chunk_hashes;  // kRecord
  std::string shard;                   // kEmptied: file name
  bool operator==(const JournalEntry&) const = default;
};

class PackJournal {
 public:
  struct Contents {
    std::string header;  // as given to Create
    std::vector<JournalEntry> entries;
    uint64_t good_bytes = 0;  // of the file
  };
  // Empty when there is none in `folder`.
  static Result<std::optional<Contents>> Read(const std::string& folder);
  static Result<std::optional<Contents>> Parse(Bytes bytes, const std::string& what);

  static Result<PackJournal> Create(const std::string& folder, const std::string& header, DiskHook hook);
  // Goes on after the good part; what follows it is cut off.
  static Result<PackJournal> Continue(const std::string& folder, const Contents& contents, DiskHook hook);

  PackJournal(PackJournal&& other) noexcept;
  PackJournal& operator=(PackJournal&& other) noexcept;
  ~PackJournal();

  // Durable on return. After a failure nothing more is appended: what reached the drive is not known.
  Status Append(const std::vector<JournalEntry>& entries);
  // The work is done.
  Status Remove();

 private:
  PackJournal(std::string path, uint64_t seed, DiskHook hook)
      : path_(std::move(path)), seed_(seed), hook_(std::move(hook)) {}
  Status OpenAt(uint64_t bytes);

  std::string path_;
  uint64_t seed_ = 0;  // of the entries' checksums: a file of another pack cannot be taken for this one's
  DiskHook hook_;
  int fd_ = -1;
  uint64_t end_ = 0;
  bool failed_ = false;
};

}  // namespace deltafin
