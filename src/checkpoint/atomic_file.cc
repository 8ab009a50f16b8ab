#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace deltafin {
namespace {

// Writes below this are gathered: a layer's header and its norms are hundreds of small pieces.
constexpr size_t kGather = size_t{1} << 20;
// Linux moves at most 2^31 - 4096 bytes in one write; smaller pieces also notice a full drive earlier.
constexpr size_t kLargestWrite = size_t{64} << 20;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename is durable once its folder is flushed. Some file systems refuse to flush a folder; the file itself is safe
// then.
void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

// The file that `path` means: what a symbolic link points to. Renaming over anything but a file of our own would
// replace a device, a pipe, or what somebody else protected.
Result<std::string> Target(const std::string& path) {
  std::error_code failed;
  std::string target = path;
  if (std::filesystem::is_symlink(path, failed)) target = std::filesystem::weakly_canonical(path, failed).string();
  struct stat info {};
  if (stat(target.c_str(), &info) != 0) return target;
  if (!S_ISREG(info.st_mode))
    return Fail(ErrorCode::kInvalidArgument, path, ": expected a file or a name that is free, got something else");
  if (access(target.c_str(), W_OK) != 0)
    return Fail(ErrorCode::kInvalidArgument, path, ": exists and may not be written: ", std::strerror(errno));
  return target;
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  DFIN_TRY(file.path_, Target(path));
  const std::string part = file.path_ + std::string(kPartMark) + std::to_string(getpid());
  file.fd_ = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return Fail(ErrorCode::kIo, path, ": cannot create: ", std::strerror(errno));
  file.part_path_ = part;
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  path_ = std::move(other.path_);
  part_path_ = std::exchange(other.part_path_, std::string());
  fd_ = std::exchange(other.fd_, -1);
  written_ = std::exchange(other.written_, 0);
  pending_ = std::move(other.pending_);
  other.pending_.clear();
  return *this;
}

void AtomicFile::Discard() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!part_path_.empty()) unlink(part_path_.c_str());
  part_path_.clear();
  pending_.clear();
}

Status AtomicFile::Write(Bytes bytes) {
  DFIN_CHECK(fd_ >= 0, "write to a file that is already published");
  written_ += bytes.size();
  if (pending_.size() + bytes.size() < kGather) {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    return {};
  }
  DFIN_TRY_VOID(Flush());
  return WriteThrough(bytes);
}

Status AtomicFile::Flush() {
  DFIN_TRY_VOID(WriteThrough(pending_));
  pending_.clear();
  return {};
}

Status AtomicFile::WriteThrough(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Fail(ErrorCode::kIo, path_, ": cannot write ", bytes.size(), " more bytes (", written_,
                  " given so far): ", std::strerror(n < 0 ? errno : ENOSPC));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::Publish() {
  DFIN_CHECK(fd_ >= 0, "a file is published once");
  DFIN_TRY_VOID(Flush());
  if (fsync(fd_) != 0) return Fail(ErrorCode::kIo, path_, ": cannot flush: ", std::strerror(errno));
  const int closed = close(std::exchange(fd_, -1));
  if (closed != 0) return Fail(ErrorCode::kIo, path_, ": cannot close: ", std::strerror(errno));
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0)
    return Fail(ErrorCode::kIo, path_, ": cannot rename ", part_path_, ": ", std::strerror(errno));
  part_path_.clear();
  SyncFolder(FolderOf(path_));
  return {};
}

Status WriteFileAtomically(const std::string& path, Bytes bytes) {
  DFIN_TRY(AtomicFile file, AtomicFile::Create(path));
  DFIN_TRY_VOID(file.Write(bytes));
  return file.Publish();
}

}  // namespace deltafin
