// DirectFile::Open for Darwin: F_NOCACHE, which asks for reads past the page cache and refuses no alignment. Untested.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/direct_file.h"

namespace deltafin {
namespace {

// Unaligned reads work, through the cache; whole blocks go past it.
constexpr uint64_t kBlock = 4096;

Failure OpenFailure(const std::string& path, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  return Fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "opening ", path, ": ", std::strerror(error_number));
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
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return OpenFailure(path, errno);
  file.buffered_ = fcntl(file.fd_, F_NOCACHE, 1) != 0;
  file.alignment_ = file.buffered_ ? 1 : kBlock;
  if (fstat(file.fd_, &info) != 0) return OpenFailure(path, errno);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

}  // namespace deltafin
