#include "setup/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "checkpoint/shard_file.h"
#include "pack/output_file.h"

namespace deltafin {

namespace fs = std::filesystem;

Result<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path, uint64_t size, DiskHook hook) {
  std::unique_ptr<PartFile> file(new PartFile(path, std::move(hook)));
  const std::string& part = file->part_path_;
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  if (failed) return DiskFailure("making the folder of", path, failed.value());
  DFIN_TRY_VOID(Announce(file->hook_, DiskStep::kResize, part));
  file->fd_ = open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file->fd_ < 0) return DiskFailure("opening", part, errno);
  struct stat info {};
  if (fstat(file->fd_, &info) != 0) return DiskFailure("looking at", part, errno);
  if (!S_ISREG(info.st_mode))
    return Fail(ErrorCode::kInvalidArgument, part, ": expected a file or a free name, got something else: remove it");
  // A file that was just made has no bytes; one of another length is not ours.
  file->fresh_ = static_cast<uint64_t>(info.st_size) != size || size == 0;
  if (file->fresh_ && (ftruncate(file->fd_, 0) != 0 || ftruncate(file->fd_, static_cast<off_t>(size)) != 0))
    return DiskFailure("making", part, errno);
  SyncFolder(fs::path(path).parent_path().string());
  return file;
}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);
}

Status PartFile::Write(uint64_t offset, Bytes bytes) {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kWrite, part_path_));
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return DiskFailure("writing", part_path_, n < 0 ? errno : ENOSPC);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status PartFile::Sync() {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kSync, part_path_));
  if (const int error = system_file::SyncData(fd_); error != 0) return DiskFailure("flushing", part_path_, error);
  // So that terabytes push nobody's memory out, and what is verified later is what the drive has.
  system_file::DropCache(fd_);
  return {};
}

Result<int64_t> PartFile::ModifiedNs() const {
  DFIN_TRY(const FileStamp stamp, StampFile(part_path_));
  return stamp.modified_ns;
}

Status PartFile::Publish() {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kPublish, path_));
  if (fsync(fd_) != 0) return DiskFailure("flushing", part_path_, errno);
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0) return DiskFailure("renaming", part_path_, errno);
  SyncFolder(fs::path(path_).parent_path().string());
  return {};
}

Status PartFile::Remove() { return RemoveFile(hook_, part_path_); }

}  // namespace deltafin
