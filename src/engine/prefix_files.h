// PrefixFiles: beginnings of conversations on a drive, so that a prefix cache (engine/prefix_cache.h) finds them again
// after a restart.
//
// A folder with two files for each (engine/snapshot_files.h): complete, checked and tied to model, backend and types
// as those are, or not used. The folder is locked while it is open. Bounded: when its files are larger than the
// budget, those that were used longest ago are removed. `used` is when, on the caller's clock: a number that grows,
// from latest() on. Only tokens are held in memory. Nothing here is needed for anything: what cannot be read is removed
// and read anew by the model. Thread rule: engine thread only. Errors: kUnavailable (open elsewhere), kIo.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/session.h"
#include "engine/snapshot_files.h"

namespace deltafin {

class PrefixFiles {
 public:
  // Makes the folder. `like`: a session as they are to be kept. The logger outlives this.
  static Result<PrefixFiles> Open(const std::string& folder, const SnapshotIdentity& identity, const Session& like,
                                  uint64_t budget, Logger& logger);
  PrefixFiles(PrefixFiles&& other) noexcept;
  PrefixFiles& operator=(PrefixFiles&&) = delete;
  ~PrefixFiles();

  // The session becomes the longest kept prefix of `tokens` that is longer than `than`; all of them only where the
  // logits after them were kept too, which `logits` [vocab] then become. False: there is none; the session is as it
  // was, or empty after a fault.
  bool Restore(std::span<const TokenId> tokens, int64_t than, Session& session, std::span<float> logits, uint64_t used);
  bool Has(std::span<const TokenId> tokens, bool with_logits = false) const;
  // Writes it, unless it is there. It is not kept where it would need the room of others that were used later.
  Status Keep(const SessionCheckpoint& checkpoint, uint64_t used);

  // Was used from memory: is not among the oldest, if it is here.
  void Touch(std::span<const TokenId> tokens, uint64_t used);

  size_t size() const { return entries_.size(); }
  uint64_t bytes() const;
  uint64_t latest() const;  // when the last used one was; 0: there is none

 private:
  struct Entry {
    std::string stem;
    std::vector<TokenId> tokens;
    bool has_logits = false;
    uint64_t bytes = 0;
    uint64_t used = 0;  // larger: later
  };
  PrefixFiles(std::string folder, SnapshotIdentity identity, int lock, uint64_t budget, Logger& logger)
      : folder_(std::move(folder)), identity_(std::move(identity)), lock_(lock), budget_(budget), logger_(&logger) {}

  void ReadFolder(const Session& like);
  void Remove(size_t entry);
  bool MakeRoom(uint64_t room, uint64_t used);  // false: not without those used later
  void SetTime(const Entry& entry) const;

  std::string folder_;
  SnapshotIdentity identity_;
  int lock_ = -1;
  uint64_t budget_;
  Logger* logger_;
  std::vector<Entry> entries_;
};

}  // namespace deltafin
