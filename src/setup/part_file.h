// PartFile: a file that is being fetched, under its name with ".part" behind it, until it is whole and verified.
//
// Has its full size from the beginning, so that ranges may arrive in any order. It stays when the process ends, for the
// next call. Thread rule: Write() and Sync() from any thread; the rest from one, when nobody writes. Errors: kIo,
// kUnavailable (no space), kInvalidArgument (something else has that name).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

class PartFile {
 public:
  // `path` is the final name; folders above it that are missing are made.
  static Result<std::unique_ptr<PartFile>> Open(const std::string& path, uint64_t size, DiskHook hook);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Nothing of it was there before, whatever the journal says.
  bool fresh() const { return fresh_; }
  const std::string& part_path() const { return part_path_; }

  Status Write(uint64_t offset, Bytes bytes);
  // Everything written by then is on the drive on return.
  Status Sync();
  Result<int64_t> ModifiedNs() const;
  // Gives it its final name, durably.
  Status Publish();
  Status Remove();

 private:
  PartFile(std::string path, DiskHook hook)
      : path_(std::move(path)), part_path_(path_ + ".part"), hook_(std::move(hook)) {}

  const std::string path_, part_path_;
  const DiskHook hook_;
  int fd_ = -1;
  bool fresh_ = false;
};

}  // namespace deltafin
