// DriveTestFiles: the files that are read to measure a drive: large ones that are there, or one of its own.
//
// A file of its own is unlinked before its first byte is written, so that nothing of it outlives the process, however
// that ends. Existing files are only read. Every file is open twice, for direct and for buffered reads. Move-only.
// Thread-compatible. Errors: kNotFound, kInvalidArgument (read-only folder), kUnavailable (space: needed and free),
// kIo, kCancelled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "io/direct_file.h"
#include "io/drive_spans.h"

namespace deltafin {

// Shorter files are not worth opening: their reads would all hit the same few places.
inline constexpr uint64_t kSmallestTestFile = uint64_t{32} << 20;

struct OwnFileOptions {
  uint64_t bytes = 0;
  // Writing ends early after this long, once kLeastOwnBytes are there.
  double seconds = 20;
};
inline constexpr uint64_t kLeastOwnBytes = uint64_t{128} << 20;
// Room that a file of its own leaves on the drive.
inline constexpr uint64_t kSpaceLeftAlone = uint64_t{256} << 20;

class DriveTestFiles {
 public:
  static Result<DriveTestFiles> Existing(const std::vector<std::string>& paths);
  static Result<DriveTestFiles> Own(const std::string& folder, const OwnFileOptions& options, const Clock& clock,
                                    CancelToken cancel);

  size_t size() const { return direct_.size(); }
  const DirectFile& file(size_t i, bool direct) const { return direct ? direct_[i] : buffered_[i]; }
  std::vector<uint64_t> sizes() const { return bytes_; }
  bool own() const { return own_; }
  // Whether the file system has direct reads at all.
  bool can_read_directly() const;

  // Asks the page cache to let go of `spans`.
  void Forget(const std::vector<UnreadSpans::Span>& spans) const;
  // The part of `spans` that the page cache holds, 0..1; 0 where the system does not tell.
  double CachedPart(const std::vector<UnreadSpans::Span>& spans) const;

 private:
  std::vector<DirectFile> direct_, buffered_;
  std::vector<uint64_t> bytes_;
  bool own_ = false;
};

}  // namespace deltafin
