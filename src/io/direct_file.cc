// What DirectFile does alike on every system; opening is in direct_file_linux.cc and direct_file_darwin.cc.
#include "io/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace deltafin {

Result<DirectFile> DirectFile::OpenBuffered(const std::string& path) {
  struct stat info {};
  // O_NONBLOCK: a pipe would wait for its writer. It means nothing for a regular file.
  DirectFile file;
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0 || fstat(file.fd_, &info) != 0)
    return Fail(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo, "opening ", path, ": ",
                std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Fail(ErrorCode::kCorrupt, "opening ", path, ": expected a regular file");
  file.path_ = path;
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.buffered_ = true;
  return file;
}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  if (this != &other) {
    Close();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    size_ = std::exchange(other.size_, 0);
    alignment_ = std::exchange(other.alignment_, 1);
    buffered_ = other.buffered_;
  }
  return *this;
}

void DirectFile::Close() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace deltafin
