// What OutputFile asks of Linux: O_DIRECT, fallocate, holes.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "pack/output_file.h"

namespace deltafin::system_file {
namespace {

int ErrorOf(int result) { return result == 0 ? 0 : errno; }

}  // namespace

int OpenForWriting(const std::string& path, bool* direct) {
  *direct = true;
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0644);
  if (fd >= 0 || errno != EINVAL) return fd;
  *direct = false;
  return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
}

int StopDirect(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? errno : ErrorOf(fcntl(fd, F_SETFL, flags & ~O_DIRECT));
}

int Reserve(int fd, uint64_t offset, uint64_t bytes) {
  return ErrorOf(fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

int PunchHole(int fd, uint64_t offset, uint64_t bytes) {
  return ErrorOf(
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

int SyncData(int fd) { return ErrorOf(fdatasync(fd)); }

void DropCache(int fd) { (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

}  // namespace deltafin::system_file
