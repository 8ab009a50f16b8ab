// What DirectFile does alike on every system; opening is in direct_file_linux.cc and direct_file_darwin.cc.
#include "io/direct_file.h"

#include <unistd.h>

#include <utility>

namespace deltafin {

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
