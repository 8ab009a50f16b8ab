// StreamFolder: a model folder whose shards are not all there yet, open for reading or for fetching into it.
//
// Knows which byte ranges are there, puts new ones in their place, gives up old ones, and gives a whole shard its final
// name. A range counts as there only after its bytes have been flushed to the drive and then its entry in the presence
// map, so ending the process at any point loses nothing that was said to be there, and never makes anything be there
// that is not. One process fetches into a folder at a time (flock on partial/, which the system gives up when the
// process ends); any number may read while none fetches. A shard under its final name is used, whoever put it there;
// that it was compared with its listed checksum is a noted fact, which holds while its size and time stay.
// Thread-safe. Errors: kUnavailable (another process, no space left), kIo, kCorrupt, kNotFound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/presence_map.h"
#include "checkpoint/stream_manifest.h"

namespace deltafin {

class StreamFolder {
 public:
  enum class Use : uint8_t {
    kRead,
    kFetch,
    kFill,  // kFetch by who brings all that is missing: a file that was removed or cut short begins anew
  };

  // Makes `folder` (which exists) one of these: all files absent, nothing fetched. Open() comes next. The caller keeps
  // others out.
  static Status Create(const std::string& folder, const StreamManifest& manifest);
  // `most_expert_bytes`: of experts that Put() keeps; 0: no bound.
  static Result<std::unique_ptr<StreamFolder>> Open(const std::string& folder, Use use, uint64_t most_expert_bytes = 0);
  ~StreamFolder();
  StreamFolder(const StreamFolder&) = delete;
  StreamFolder& operator=(const StreamFolder&) = delete;

  const std::string& folder() const { return folder_; }
  const StreamManifest& manifest() const { return manifest_; }
  std::string PathOf(int32_t file) const;  // where its bytes lie now
  // Under its final name.
  bool published(int32_t file) const;
  // Published, and compared with its listed checksum since it was last changed.
  bool compared(int32_t file) const;
  // The caller has compared it; it was modified at `modified_ns` before that began.
  Status SetCompared(int32_t file, int64_t modified_ns);
  // Where everything comes from, from now on.
  Status SetEndpoint(const std::string& endpoint);

  bool Has(const FileRange& range) const;
  // XXH3 of the bytes as they were fetched; empty when they were not fetched here.
  std::optional<uint64_t> HashOf(const FileRange& range) const;
  // Its bytes turned out to be wrong: from now on it is not there.
  void Doubt(const FileRange& range);

  // Puts `bytes` at `offset` of the file; `sizes` cuts them into ranges, each of which is there afterwards. With a
  // bound on experts, room is made first: the oldest are given up, but none for which `busy` says true; when all are
  // busy the bound is exceeded.
  struct Piece {
    PresenceKind kind = PresenceKind::kExpert;
    int32_t file = 0;
    uint64_t offset = 0;
    Bytes bytes;
    std::span<const uint64_t> sizes;
  };
  Status Put(const Piece& piece, const std::function<bool(const FileRange&)>& busy = {});

  // Everything but experts is there: runs may begin; or it turned out that it is not.
  Status SetDenseComplete(bool complete);
  // Every byte of the file is there.
  bool IsWhole(int32_t file) const;
  // The file gets its final name. The caller has compared its SHA-256.
  Status Publish(int32_t file);
  // All files have their final names: the folder becomes one like any other.
  Status Finish();

  struct Totals {
    uint64_t experts = 0, expert_bytes = 0;  // fetched and kept
    uint64_t published = 0;                  // files
    uint64_t damaged_entries = 0;            // of the presence map, found when it was opened
  };
  Totals totals() const;
  std::vector<PresenceEntry> Ranges(int32_t file) const;

 private:
  StreamFolder(std::string folder, StreamManifest manifest, uint64_t most_expert_bytes);
  Status Lock(Use use);
  Status OpenMap(Use use);
  void FindPublished();
  Status BeginAnew();
  Result<int> WritableFile(int32_t file);
  Status Append(std::span<const PresenceEntry> entries);
  Status MakeRoom(uint64_t bytes, const std::function<bool(const FileRange&)>& busy);

  const std::string folder_;
  const uint64_t most_expert_bytes_;
  StreamManifest manifest_;
  int lock_fd_ = -1;

  mutable std::mutex mutex_;
  // Under the mutex.
  PresenceMap map_;
  std::vector<bool> published_, compared_;
  std::vector<int> fds_;  // for writing; -1: not open
  int map_fd_ = -1;
  uint64_t map_end_ = 0;
  bool map_failed_ = false;
  uint64_t damaged_entries_ = 0;
  uint64_t reserved_ = 0;  // of experts that are being put
};

}  // namespace deltafin
