// OutputFile: a file that pieces of records are written into, past the page cache where the file system allows it.
//
// Whole pages from page-aligned memory go to the drive directly; anything else through the cache, and is dropped from
// it at the next Sync(), so that packing terabytes pushes nobody's memory out. What the operating system does
// differently is in output_file_linux.cc or output_file_darwin.cc. Thread rule: one thread at a time. Errors: kIo,
// kUnavailable (no space left).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

class OutputFile {
 public:
  // Made when it is not there; its contents stay. kInvalidArgument when it is not a regular file.
  static Result<std::unique_ptr<OutputFile>> Open(const std::string& path, DiskHook hook);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Asks for room up to `end` and some more, but never beyond `limit`; the size stays. No harm where it is refused.
  void Reserve(uint64_t end, uint64_t limit);
  Status Write(uint64_t offset, Bytes bytes);
  // The bytes read as zero afterwards; their room goes back to the file system where it can take holes.
  Status Erase(uint64_t offset, uint64_t bytes);
  Status SetSize(uint64_t bytes);
  // Returns when everything written is on the drive.
  Status Sync();
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }

 private:
  OutputFile(std::string path, DiskHook hook) : path_(std::move(path)), hook_(std::move(hook)) {}
  Status WriteZeros(uint64_t offset, uint64_t bytes);

  std::string path_;
  DiskHook hook_;
  int fd_ = -1;
  bool direct_ = false;
  bool cached_writes_ = false;  // since the last Sync()
  uint64_t reserved_ = 0;
};

// One implementation each operating system. All but the first return 0 or errno.
namespace system_file {
// The descriptor, or -1 with errno; *direct says whether writes go past the cache.
int OpenForWriting(const std::string& path, bool* direct);
// Writes through the cache from now on.
int StopDirect(int fd);
int Reserve(int fd, uint64_t offset, uint64_t bytes);
int PunchHole(int fd, uint64_t offset, uint64_t bytes);
int SyncData(int fd);
void DropCache(int fd);
}  // namespace system_file

}  // namespace deltafin
