// DirectFile: a file opened for reads that bypass the page cache.
//
// Linux: O_DIRECT with the alignment from statx; Darwin: F_NOCACHE. Where a file system refuses direct reads the file
// is opened buffered, buffered() says so, and the caller warns once. Never writes. Move-only; closes when it dies. One
// of direct_file_linux.cc and direct_file_darwin.cc is linked. Thread-safe once open: reads carry their offset.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace deltafin {

// Whether files of this folder are read faster through the page cache; empty: none are (io/drive_profile.h).
using ReadsBuffered = std::function<bool(const std::string& folder)>;

class DirectFile {
 public:
  // Regular files only. kNotFound, kIo (with path and errno text), kCorrupt for a folder or special file.
  static Result<DirectFile> Open(const std::string& path);
  // Through the page cache although direct reads would work: for drives that were measured to be faster so.
  static Result<DirectFile> OpenBuffered(const std::string& path);

  DirectFile() = default;
  DirectFile(DirectFile&& other) noexcept { *this = static_cast<DirectFile&&>(other); }
  DirectFile& operator=(DirectFile&& other) noexcept;
  ~DirectFile() { Close(); }

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  uint64_t size() const { return size_; }
  // Offsets, lengths and memory of reads must be multiples of this (a power of two, 1..64 KiB; 512 or 4096 as a rule).
  uint64_t alignment() const { return alignment_; }
  bool buffered() const { return buffered_; }

 private:
  void Close() noexcept;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  uint64_t alignment_ = 1;
  bool buffered_ = false;
};

}  // namespace deltafin
