// AtomicFile: a file that appears under its name only when it is complete.
//
// Bytes go to a neighbour named "<path>.part-<process id>"; Publish() flushes it to the drive, renames it and flushes
// the folder. Dying without Publish() removes the neighbour, so nobody ever sees half a file. Move-only, not
// thread-safe. Errors: kIo (with path and system text; no space left says how many bytes were written).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace deltafin {

// Between the name and the process id of a file that is not complete.
inline constexpr std::string_view kPartMark = ".part-";

class AtomicFile {
 public:
  // An existing file of that name stays untouched until Publish().
  static Result<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept { *this = static_cast<AtomicFile&&>(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile() { Discard(); }

  Status Write(Bytes bytes);
  Status Publish();

  const std::string& path() const { return path_; }

 private:
  AtomicFile() = default;
  void Discard() noexcept;
  Status Flush();
  Status WriteThrough(Bytes bytes);

  std::string path_;
  std::string part_path_;  // "" once published or moved from
  int fd_ = -1;
  uint64_t written_ = 0;
  std::vector<std::byte> pending_;  // small writes, gathered
};

// The whole content in one call.
Status WriteFileAtomically(const std::string& path, Bytes bytes);

}  // namespace deltafin
