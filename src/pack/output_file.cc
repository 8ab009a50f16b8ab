#include "pack/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace deltafin {
namespace {

constexpr uint64_t kPage = 4096;                    // what every file system takes directly
constexpr size_t kLargestWrite = size_t{16} << 20;  // notices a full drive early
constexpr uint64_t kReserveStep = uint64_t{1} << 30;

}  // namespace

Result<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path, DiskHook hook) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Fail(ErrorCode::kInvalidArgument, path, ": expected a file or a name that is free, got something else");
  DFIN_TRY_VOID(Announce(hook, DiskStep::kResize, path));
  std::unique_ptr<OutputFile> file(new OutputFile(path, std::move(hook)));
  file->fd_ = system_file::OpenForWriting(path, &file->direct_);
  if (file->fd_ < 0) return DiskFailure("opening", path, errno);
  return file;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

void OutputFile::Reserve(uint64_t end, uint64_t limit) {
  const uint64_t wanted = std::min(AlignUp(end, kReserveStep), limit);
  if (end <= reserved_ || wanted <= reserved_) return;
  // What is really needed and not there shows when it is written.
  (void)system_file::Reserve(fd_, reserved_, wanted - reserved_);
  reserved_ = wanted;
}

Status OutputFile::Write(uint64_t offset, Bytes bytes) {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kWrite, path_));
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const bool whole_pages = offset % kPage == 0 && bytes.size() % kPage == 0 && address % kPage == 0;
  if (direct_ && !whole_pages) {
    if (const int failed = system_file::StopDirect(fd_)) return DiskFailure("writing", path_, failed);
    direct_ = false;
  }
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min(bytes.size(), kLargestWrite), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && direct_ && system_file::StopDirect(fd_) == 0) {
      direct_ = false;  // opened, but the file system does not write directly
      continue;
    }
    if (n <= 0) return DiskFailure("writing", path_, n < 0 ? errno : ENOSPC);
    cached_writes_ |= !direct_;
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status OutputFile::WriteZeros(uint64_t offset, uint64_t bytes) {
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min<uint64_t>(bytes, kLargestWrite)));
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, zeros.size());
    DFIN_TRY_VOID(Write(offset, Bytes(zeros).first(static_cast<size_t>(piece))));
    offset += piece;
    bytes -= piece;
  }
  return {};
}

Status OutputFile::Erase(uint64_t offset, uint64_t bytes) {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return DiskFailure("asking for the size of", path_, errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (offset >= size || bytes == 0) return {};
  bytes = std::min(bytes, size - offset);
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kResize, path_));
  if (system_file::PunchHole(fd_, offset, bytes) == 0) return {};
  return WriteZeros(offset, bytes);
}

Status OutputFile::SetSize(uint64_t bytes) {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kResize, path_));
  while (ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    if (errno != EINTR) return DiskFailure("setting the size of", path_, errno);
  reserved_ = std::min(reserved_, bytes);
  return {};
}

Status OutputFile::Sync() {
  DFIN_TRY_VOID(Announce(hook_, DiskStep::kSync, path_));
  if (const int failed = system_file::SyncData(fd_)) return DiskFailure("flushing", path_, failed);
  if (cached_writes_) system_file::DropCache(fd_);
  cached_writes_ = false;
  return {};
}

}  // namespace deltafin
