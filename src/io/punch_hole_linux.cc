#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/punch_hole.h"

namespace deltafin {

int PunchHole(int fd, uint64_t offset, uint64_t bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace deltafin
