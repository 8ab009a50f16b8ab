// SetupJournal: what a download has brought so far, in the target folder: ranges of partial files, and whole files that
// were verified.
//
// Lines of text, each with its own checksum; a line is written only after the bytes it speaks of were flushed to the
// drive. Reading stops at the first line that is torn or damaged: what followed is fetched again. It stays when the
// download is complete, so that the next call knows what was verified. One process at a time (flock). Layout:
// docs/FORMAT.md. Thread-safe. Errors: kIo, kUnavailable (no space; another setup at work), kCorrupt (its first line).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/unfinished_download.h"
#include "pack/disk.h"

namespace deltafin {

struct SetupEntry {
  enum class Kind : uint8_t {
    kRange,     // these bytes of the partial file are on the drive
    kAgain,     // nothing that was said of the file holds any more
    kVerified,  // the whole file has the right checksum; `modified_ns` is its time then
  };
  Kind kind = Kind::kRange;
  uint32_t file = 0;  // in the order of the file list
  uint64_t offset = 0, length = 0;
  int64_t modified_ns = 0;
  bool operator==(const SetupEntry&) const = default;
};

class SetupJournal {
 public:
  struct Contents {
    std::string header;  // as given to Open; one line
    std::vector<SetupEntry> entries;
    uint64_t good_bytes = 0;
  };
  // Empty when there is none.
  static Result<std::optional<Contents>> Read(const std::string& folder);
  static Result<Contents> Parse(std::string_view text, const std::string& what);

  // Begins one, or goes on after the good part of `contents`.
  static Result<std::unique_ptr<SetupJournal>> Open(const std::string& folder, const std::string& header,
                                                    const std::optional<Contents>& contents, DiskHook hook);
  ~SetupJournal();
  SetupJournal(const SetupJournal&) = delete;
  SetupJournal& operator=(const SetupJournal&) = delete;

  // Durable on return. After a failure nothing more is appended.
  Status Append(const SetupEntry& entry);

 private:
  SetupJournal(std::string path, const std::string& header, DiskHook hook);

  const std::string path_;
  const uint64_t seed_;  // of the lines' checksums: a line of another download cannot be taken for this one's
  const DiskHook hook_;
  std::mutex mutex_;
  int fd_ = -1;
  uint64_t end_ = 0;
  bool failed_ = false;
};

}  // namespace deltafin
