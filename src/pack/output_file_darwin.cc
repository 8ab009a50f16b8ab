// What OutputFile asks of macOS: F_NOCACHE, F_PREALLOCATE is left to the file system, holes by F_PUNCHHOLE.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "pack/output_file.h"

namespace deltafin::system_file {

int OpenForWriting(const std::string& path, bool* direct) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  *direct = fd >= 0 && fcntl(fd, F_NOCACHE, 1) == 0;
  return fd;
}

int StopDirect(int fd) { return fcntl(fd, F_NOCACHE, 0) == 0 ? 0 : errno; }

int Reserve(int, uint64_t, uint64_t) { return ENOTSUP; }

int PunchHole(int fd, uint64_t offset, uint64_t bytes) {
  fpunchhole_t range{};
  range.fp_offset = static_cast<off_t>(offset);
  range.fp_length = static_cast<off_t>(bytes);
  return fcntl(fd, F_PUNCHHOLE, &range) == 0 ? 0 : errno;
}

int SyncData(int fd) { return fcntl(fd, F_FULLFSYNC) == 0 || fsync(fd) == 0 ? 0 : errno; }

void DropCache(int) {}

}  // namespace deltafin::system_file
