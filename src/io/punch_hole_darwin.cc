#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/punch_hole.h"

namespace deltafin {

int PunchHole(int fd, uint64_t offset, uint64_t bytes) {
  // The system takes whole blocks only.
  constexpr uint64_t kBlock = 4096;
  const uint64_t begin = (offset + kBlock - 1) / kBlock * kBlock;
  const uint64_t end = (offset + bytes) / kBlock * kBlock;
  if (begin >= end) return 0;
  fpunchhole_t range{};
  range.fp_offset = static_cast<off_t>(begin);
  range.fp_length = static_cast<off_t>(end - begin);
  return fcntl(fd, F_PUNCHHOLE, &range) == 0 ? 0 : errno;
}

}  // namespace deltafin
