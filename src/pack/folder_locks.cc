#include "pack/folder_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace deltafin {

FolderLocks::~FolderLocks() {
  for (const Held& held : held_) close(held.fd);
}

Status FolderLocks::Take(std::vector<std::string> folders, Kind kind) {
  // In one order everywhere: of two calls that want the same folders one gets all of them.
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) {
    Held held;
    held.fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (held.fd < 0) continue;
    struct stat info {};
    if (fstat(held.fd, &info) == 0) {
      held.device = static_cast<uint64_t>(info.st_dev);
      held.inode = static_cast<uint64_t>(info.st_ino);
    }
    // A second lock of ours on one folder, under whatever name, would wait for the first: that one is raised instead.
    const auto ours = std::find_if(held_.begin(), held_.end(),
                                   [&](const Held& h) { return h.device == held.device && h.inode == held.inode; });
    if (ours != held_.end()) {
      close(held.fd);
      if (kind == Kind::kReads) continue;
      held = *ours;
    } else {
      held_.push_back(held);
    }
    if (flock(held.fd, (kind == Kind::kWrites ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return Fail(ErrorCode::kUnavailable, folder, ": expected to be alone here, got another setup, pack, ",
                  "rebalance or repair at work: wait for it to end, then give the command again");
  }
  return {};
}

}  // namespace deltafin
