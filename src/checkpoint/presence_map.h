// PresenceMap: which bytes of the shards of a streamed folder are there, and the file that remembers it.
//
// partial/present.log only grows: an entry is added after the bytes that it speaks of are on the drive. Every entry has
// its own checksum and the same size, so a damaged one costs its own bytes only (they are fetched again), and a torn
// one at the end is cut off. Each range carries the XXH3 of its bytes as they were fetched. Layout: docs/FORMAT.md.
// Parsing is a pure function of hostile bytes; the map is thread-compatible. Errors: kCorrupt (the header).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "checkpoint/stream_manifest.h"

namespace deltafin {

inline constexpr const char* kPresenceName = "present.log";
inline constexpr uint64_t kPresenceHeaderBytes = 24;
inline constexpr uint64_t kPresenceEntryBytes = 48;
// 82,432 experts of the release take 4 MB; --keep-experts adds two entries for each expert that comes back.
inline constexpr uint64_t kMaxPresenceBytes = uint64_t{1} << 30;

struct FileRange {
  int32_t file = 0;  // of the manifest
  uint64_t offset = 0, bytes = 0;
  auto operator<=>(const FileRange&) const = default;
};

enum class PresenceKind : uint32_t {
  kDense = 1,    // header, dense tensors: all but experts
  kExpert = 2,   // the record of one expert
  kDropped = 3,  // bytes that were there are not any more
  kWhole = 4,  // the file has its final name and was compared with its checksum; `hash`: its time of modification then
};

struct PresenceEntry {
  PresenceKind kind = PresenceKind::kDense;
  FileRange range;
  uint64_t hash = 0;
  bool operator==(const PresenceEntry&) const = default;
};

struct PresenceContents {
  std::vector<PresenceEntry> entries;
  uint64_t good_bytes = 0;  // of the file, up to the last whole entry
  uint64_t damaged = 0;     // entries that were left out
};

std::string PresenceHeader(uint64_t manifest_id);
std::string PresenceEntryText(const PresenceEntry& entry, uint64_t manifest_id);
// kCorrupt: no header, or of another manifest. Entries that leave their file are damaged.
Result<PresenceContents> ParsePresence(Bytes bytes, const StreamManifest& manifest, const std::string& what);

class PresenceMap {
 public:
  explicit PresenceMap(size_t files) : files_(files), compared_(files) {}

  void Apply(const PresenceEntry& entry);
  // As if it had never come.
  void Forget(const FileRange& range);
  // The hash of exactly this range; empty when it is not there.
  std::optional<uint64_t> HashOf(const FileRange& range) const;
  // Experts, the first that came first.
  std::optional<FileRange> Oldest(uint64_t* after) const;
  // Every byte of [begin, end) is there.
  bool Covers(const FileRange& range) const;

  uint64_t expert_bytes() const { return expert_bytes_; }
  uint64_t experts() const { return by_age_.size(); }
  // Time of modification, in nanoseconds, of the whole file when it was compared with its listed checksum; empty when
  // it never was.
  std::optional<uint64_t> ComparedAt(int32_t file) const { return compared_[static_cast<size_t>(file)]; }
  // Ranges of one file, ascending.
  std::vector<PresenceEntry> Of(int32_t file) const;

 private:
  struct Held {
    uint64_t bytes = 0, hash = 0;
    uint64_t age = 0;  // of experts; 0: dense
  };
  std::vector<std::map<uint64_t, Held>> files_;  // by offset
  std::map<uint64_t, FileRange> by_age_;         // experts
  std::vector<std::optional<uint64_t>> compared_;
  uint64_t next_age_ = 1;
  uint64_t expert_bytes_ = 0;
};

}  // namespace deltafin
