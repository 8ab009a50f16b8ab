#include "checkpoint/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/units.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

Failure SystemError(const std::string& path, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Fail(code, path, ": ", std::strerror(error));
}

Result<FileStamp> StampFrom(const struct stat& info, const std::string& path) {
  if (!S_ISREG(info.st_mode))
    return Fail(ErrorCode::kCorrupt, path, ": expected a regular file, got ",
                S_ISDIR(info.st_mode) ? "a folder" : "a special file");
  // The field of struct stat that holds nanoseconds has another name on every system.
  std::error_code error;
  const auto modified = std::filesystem::last_write_time(path, error).time_since_epoch();
  if (error) return SystemError(path, error.value());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(modified).count();
  return FileStamp{static_cast<uint64_t>(info.st_size), static_cast<int64_t>(ns)};
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status ReadAt(int fd, char* out, uint64_t bytes, uint64_t offset, const std::string& path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, errno);
    if (got == 0) return Fail(ErrorCode::kCorrupt, path, ": truncated: could not read the byte at ", offset);
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace

Result<FileStamp> StampFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return SystemError(path, errno);
  return StampFrom(info, path);
}

Result<ShardHeader> ReadShardHeader(const std::string& path) {
  const OpenFile file(path);
  struct stat info {};
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0) return SystemError(path, errno);
  ShardHeader shard;
  DFIN_TRY(shard.stamp, StampFrom(info, path));

  char first[8] = {};
  const uint64_t first_bytes = std::min<uint64_t>(sizeof first, shard.stamp.bytes);
  DFIN_TRY_VOID(ReadAt(file.fd(), first, first_bytes, 0, path));
  DFIN_TRY(const uint64_t length, ReadHeaderLength({first, first_bytes}, shard.stamp.bytes, path));
  std::string json(length, '\0');
  DFIN_TRY_VOID(ReadAt(file.fd(), json.data(), length, sizeof first, path));
  shard.hash = Hash64(json);
  DFIN_TRY(shard.header, SafetensorsHeader::Parse(json, path));
  return shard;
}

Status CheckShardSize(const ShardHeader& shard, const std::string& path) {
  const uint64_t wanted = shard.header.file_bytes();
  const uint64_t got = shard.stamp.bytes;
  if (got == wanted) return {};
  return Fail(ErrorCode::kCorrupt, path, got < wanted ? ": truncated" : ": too long", ": expected ", wanted, " bytes (",
              FormatBytes(wanted), ") as its header says, got ", got, " (", FormatBytes(got), "): download it again");
}

Status CheckCheckpointFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  if (status.type() == std::filesystem::file_type::not_found)
    return Fail(ErrorCode::kNotFound, folder, ": expected a checkpoint folder, got nothing of that name");
  if (error) return Fail(ErrorCode::kIo, folder, ": cannot be looked at: ", error.message());
  if (!std::filesystem::is_directory(status))
    return Fail(ErrorCode::kNotFound, folder,
                ": is not a folder: expected one with config.json and shards, got a file");
  return {};
}

}  // namespace deltafin
