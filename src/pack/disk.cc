#include "pack/disk.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "checkpoint/atomic_file.h"

namespace deltafin {

namespace fs = std::filesystem;

Failure DiskFailure(std::string_view doing, const std::string& path, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT)
    return Fail(ErrorCode::kUnavailable, doing, " ", path, ": ", std::strerror(error_number),
                ": free some space there and give the same command again; it goes on where it stopped");
  return Fail(ErrorCode::kIo, doing, " ", path, ": ", std::strerror(error_number));
}

Status CheckFolderCanBe(const std::string& folder) {
  std::error_code failed;
  const fs::path path = FullPath(folder);
  const fs::file_status there = fs::status(path, failed);
  if (fs::is_directory(there)) return {};
  if (fs::exists(there))
    return Fail(ErrorCode::kInvalidArgument, folder, ": expected a folder or a name that is free, got a file");
  if (there.type() == fs::file_type::none) return DiskFailure("looking at", folder, failed.value());
  fs::path missing = path;
  while (!fs::exists(missing.parent_path(), failed) && missing.has_relative_path()) missing = missing.parent_path();
  if (missing != path)
    return Fail(ErrorCode::kIo, folder, ": expected a folder ", missing.string(),
                " to make it in, got nothing of that name: is the drive mounted? If it is, make that folder first");
  if (!fs::is_directory(path.parent_path(), failed))
    return Fail(ErrorCode::kInvalidArgument, folder, ": expected a folder ", path.parent_path().string(),
                " to make it in, got a file");
  return {};
}

Status MakeWritableFolder(const std::string& folder) {
  DFIN_TRY_VOID(CheckFolderCanBe(folder));
  std::error_code failed;
  fs::create_directory(FullPath(folder), failed);
  if (failed) return DiskFailure("making the folder", folder, failed.value());
  // access() answers for the superuser too when the file system is read-only.
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return Fail(ErrorCode::kIo, folder, ": cannot be written: ", std::strerror(errno),
                ": is the drive mounted read-only, or does it belong to somebody else?");
  return {};
}

std::string FullPath(const std::string& path) {
  std::error_code failed;
  fs::path full = fs::weakly_canonical(fs::absolute(path, failed), failed);
  if (failed) return path;
  if (!full.has_filename() && full.has_parent_path() && full != full.root_path()) full = full.parent_path();
  return full.string();
}

bool FileExists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

uint64_t AllocatedBytes(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

std::vector<std::string> ListFiles(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::string name = it->path().filename().string();
    if (name.rfind(prefix, 0) == 0) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status PublishFile(const DiskHook& hook, const std::string& path, Bytes bytes) {
  DFIN_TRY_VOID(Announce(hook, DiskStep::kPublish, path));
  return WriteFileAtomically(path, bytes);
}

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

Status RemoveFile(const DiskHook& hook, const std::string& path) {
  if (!FileExists(path)) return {};
  DFIN_TRY_VOID(Announce(hook, DiskStep::kRemove, path));
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return DiskFailure("removing", path, errno);
  SyncFolder(fs::path(path).parent_path().string());
  return {};
}

Status RemoveUnpublished(const DiskHook& hook, const std::string& folder, std::string_view prefix) {
  for (const std::string& name : ListFiles(folder, prefix)) {
    const size_t mark = name.rfind(kPartMark);
    if (mark == std::string::npos) continue;
    pid_t process = 0;
    const char* const end = name.data() + name.size();
    const auto [at, failed] = std::from_chars(name.data() + mark + kPartMark.size(), end, process);
    if (failed != std::errc() || at != end || process <= 0) continue;
    if (kill(process, 0) == 0 || errno != ESRCH) continue;  // still at work
    DFIN_TRY_VOID(RemoveFile(hook, folder + "/" + name));
  }
  return {};
}

bool NextData(int fd, uint64_t offset, uint64_t* begin, uint64_t* end) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || offset >= static_cast<uint64_t>(info.st_size)) return false;
  const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return false;
  const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
  // A file system that does not tell holes: all of it is data.
  *begin = data < 0 ? offset : static_cast<uint64_t>(data);
  *end = hole < 0 ? static_cast<uint64_t>(info.st_size) : static_cast<uint64_t>(hole);
  return true;
}

Result<DeviceSpace> SpaceOf(const std::string& folder) {
  struct stat info {};
  struct statvfs space {};
  if (stat(folder.c_str(), &info) != 0 || statvfs(folder.c_str(), &space) != 0)
    return DiskFailure("asking for the free space of", folder, errno);
  return DeviceSpace{static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(space.f_bavail) * space.f_frsize};
}

}  // namespace deltafin
