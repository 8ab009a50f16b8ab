// drive_list where there is no /proc: the drive of a folder is known by its device number and size only.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

#include "io/drive_list.h"

namespace deltafin {

Result<MountedDrive> DriveOfFolder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return Fail(ErrorCode::kNotFound, folder, ": expected a folder, got nothing of that name: is the drive mounted?");
    return Fail(ErrorCode::kIo, folder, ": cannot be looked at: ", std::strerror(errno));
  }
  if (!S_ISDIR(info.st_mode))
    return Fail(ErrorCode::kNotFound, folder, ": expected a folder, got something else: name the folder that holds it");
  struct statvfs volume {};
  if (statvfs(folder.c_str(), &volume) != 0) return Fail(ErrorCode::kIo, folder, ": ", std::strerror(errno));
  MountedDrive drive;
  drive.identity = Cat("dev:", info.st_dev, ":", uint64_t{volume.f_blocks} * volume.f_frsize);
  drive.device = Cat("dev", info.st_dev);
  drive.read_only = (volume.f_flag & ST_RDONLY) != 0;
  return drive;
}

Result<std::vector<MountedDrive>> MountedDrives() {
  return Fail(ErrorCode::kUnavailable, "this system has no list of drives to read: name the folders to measure");
}

}  // namespace deltafin
