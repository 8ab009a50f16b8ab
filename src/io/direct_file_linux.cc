// DirectFile::Open for Linux: O_DIRECT, alignment from statx where the kernel tells it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "io/direct_file.h"

namespace deltafin {
namespace {

// What every file system with direct reads accepts: a multiple of the logical block size of all common drives.
constexpr uint64_t kSafeAlignment = 4096;
constexpr uint64_t kMaxAlignment = 65536;

Failure OpenFailure(const std::string& path, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  return Fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "opening ", path, ": ", std::strerror(error_number));
}

// The alignment that reads of this file need; 0 when the file system says that it has no direct reads.
uint64_t DirectAlignment(int fd) {
#if defined(STATX_DIOALIGN)
  struct statx info {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    const uint64_t alignment = std::max<uint64_t>(info.stx_dio_mem_align, info.stx_dio_offset_align);
    const bool usable = info.stx_dio_offset_align != 0 && std::has_single_bit(alignment) && alignment <= kMaxAlignment;
    return usable ? alignment : 0;
  }
#else
  (void)fd;
#endif
  return kSafeAlignment;
}

// Reads one block at the start. 0 or errno.
int ProbeRead(int fd, uint64_t alignment) {
  // Placed so that the memory is aligned to what is promised and to no more.
  const size_t block = static_cast<size_t>(alignment);
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(2 * block, 4 * block), &std::free);
  if (memory == nullptr) return ENOMEM;
  void* destination = static_cast<std::byte*>(memory.get()) + block;
  ssize_t result = 0;
  do {
    result = pread(fd, destination, block, 0);
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

}  // namespace

Result<DirectFile> DirectFile::Open(const std::string& path) {
  struct stat info {};
  // Looked at before opening: opening a pipe would wait for its writer.
  if (stat(path.c_str(), &info) != 0) return OpenFailure(path, errno);
  if (!S_ISREG(info.st_mode))
    return Fail(ErrorCode::kCorrupt, "opening ", path, ": expected a regular file, got ",
                S_ISDIR(info.st_mode) ? "a folder" : "a special file");

  DirectFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (file.fd_ < 0 && errno != EINVAL) return OpenFailure(path, errno);
  if (file.fd_ >= 0) {
    file.alignment_ = DirectAlignment(file.fd_);
    const int refused = file.alignment_ == 0 ? EINVAL : ProbeRead(file.fd_, file.alignment_);
    if (refused == EINVAL) {
      file.Close();
    } else if (refused != 0) {
      return Fail(ErrorCode::kIo, "reading the start of ", path, ": ", std::strerror(refused));
    }
  }
  if (file.fd_ < 0) {
    file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file.fd_ < 0) return OpenFailure(path, errno);
    file.alignment_ = 1;
    file.buffered_ = true;
  }
  if (fstat(file.fd_, &info) != 0) return OpenFailure(path, errno);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

}  // namespace deltafin
