// FolderLocks: keeps two writers out of one folder: setups, packs, rebalances, repairs.
//
// The lock is on the open folder itself (flock), so nothing is left in it, and the system gives it up when the process
// ends in whatever way. Taken before anything in the folder is read, and on nothing that is ever renamed: two that start
// at the same instant must not both find it empty. A file system without such locks (some network ones) gives no protection here. Move-only; one
// thread. Errors: kUnavailable naming the folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace deltafin {

class FolderLocks {
 public:
  enum class Kind : uint8_t {
    kReads,   // others may read too: shards that stay as they are
    kWrites,  // nobody else
  };

  FolderLocks() = default;
  FolderLocks(FolderLocks&& other) noexcept : held_(std::move(other.held_)) { other.held_.clear(); }
  FolderLocks& operator=(FolderLocks&&) = delete;
  ~FolderLocks();

  // All of `folders`, or as many as it got before the error; folders that are not there are left to whoever uses them.
  Status Take(std::vector<std::string> folders, Kind kind);

 private:
  struct Held {
    int fd = -1;
    uint64_t device = 0, inode = 0;
  };
  std::vector<Held> held_;
};

}  // namespace deltafin
