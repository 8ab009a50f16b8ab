// page_cache for Linux: posix_fadvise and mincore.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "io/page_cache.h"

namespace deltafin {
namespace {

// mincore() tells the truth only to those who could find out anyway; to others it says that all is there.
bool MayAsk(const DirectFile& file) {
  struct stat info {};
  return fstat(file.fd(), &info) == 0 && (info.st_uid == geteuid() || geteuid() == 0);
}

}  // namespace

void ForgetPages(const DirectFile& file, uint64_t offset, uint64_t bytes) {
  (void)posix_fadvise(file.fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

uint64_t CachedBytes(const DirectFile& file, uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || !MayAsk(file)) return 0;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = AlignDown(offset, page);
  const size_t length = static_cast<size_t>(offset + bytes - start);
  void* map = mmap(nullptr, length, PROT_READ, MAP_SHARED, file.fd(), static_cast<off_t>(start));
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> resident(AlignUp(length, page) / page);
  uint64_t pages = 0;
  if (mincore(map, length, resident.data()) == 0)
    for (const unsigned char state : resident) pages += state & 1u;
  munmap(map, length);
  return std::min(bytes, pages * page);
}

}  // namespace deltafin
