// drive_list for Linux: /proc/self/mountinfo, /sys/dev/block, and the file system's own UUID.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "io/drive_list.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

struct Mount {
  dev_t device = 0;
  std::string root, point, options, file_system, source;
};

// Blanks and the like are written as \040 there.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped =
        text[i] == '\\' && i + 3 < text.size() &&
        std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    text.begin() + static_cast<std::ptrdiff_t>(i) + 4, [](char c) { return c >= '0' && c <= '7'; });
    if (escaped) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<Mount> ParseMount(const std::string& line) {
  std::istringstream in(line);
  std::string id, parent, numbers, root, point, options, field;
  if (!(in >> id >> parent >> numbers >> root >> point >> options)) return std::nullopt;
  while (in >> field && field != "-") {
  }
  Mount mount;
  if (!(in >> mount.file_system >> mount.source)) return std::nullopt;
  unsigned major_number = 0, minor_number = 0;
  if (std::sscanf(numbers.c_str(), "%u:%u", &major_number, &minor_number) != 2) return std::nullopt;
  mount.device = makedev(major_number, minor_number);
  mount.root = Unescape(root);
  mount.point = Unescape(point);
  mount.options = options;
  mount.source = Unescape(mount.source);
  return mount;
}

Result<std::vector<Mount>> ReadMounts() {
  std::ifstream in("/proc/self/mountinfo");
  if (!in) return Fail(ErrorCode::kUnavailable, "/proc/self/mountinfo: cannot be read: name the folders to measure");
  std::vector<Mount> mounts;
  for (std::string line; std::getline(in, line);)
    if (std::optional<Mount> mount = ParseMount(line)) mounts.push_back(std::move(*mount));
  return mounts;
}

std::string SysFolder(dev_t device) { return Cat("/sys/dev/block/", major(device), ":", minor(device)); }

// The block device that a mount lies on. Some file systems (btrfs) show a number of their own and name the device only
// as their source.
std::optional<dev_t> BlockDevice(const Mount& mount) {
  if (access(SysFolder(mount.device).c_str(), F_OK) == 0) return mount.device;
  struct stat info {};
  if (mount.source.rfind("/dev/", 0) == 0 && stat(mount.source.c_str(), &info) == 0 && S_ISBLK(info.st_mode) &&
      access(SysFolder(info.st_rdev).c_str(), F_OK) == 0)
    return info.st_rdev;
  return std::nullopt;
}

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return line;
}

// The folder of the whole disk in /sys: a partition's lies inside it.
fs::path DiskFolder(dev_t device) {
  std::error_code failed;
  const fs::path folder = fs::canonical(SysFolder(device), failed);
  if (failed) return {};
  return fs::exists(folder / "partition", failed) ? folder.parent_path() : folder;
}

// Of the file system that `folder` lies in; "" where the kernel (before 6.9) or the file system does not tell, or has
// none (zero).
std::string FileSystemUuid(const std::string& folder) {
  struct Uuid {
    uint8_t length;
    uint8_t bytes[16];
  };
  Uuid uuid{};
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return "";
  constexpr unsigned long kGetUuid = _IOR(0x15, 0, Uuid);  // FS_IOC_GETFSUUID
  const bool known = ioctl(fd, kGetUuid, &uuid) == 0 && uuid.length > 0 && uuid.length <= sizeof uuid.bytes;
  close(fd);
  std::string text;
  for (uint8_t i = 0; known && i < uuid.length; ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", uuid.bytes[i]);
    text += hex.data();
  }
  return text.find_first_not_of('0') == std::string::npos ? "" : text;
}

// The same from the links that udev keeps.
std::string LinkedUuid(dev_t device) {
  constexpr const char* kFolder = "/dev/disk/by-uuid";
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return "";
  std::string found;
  while (const dirent* entry = readdir(folder)) {
    struct stat info {};
    if (stat(Cat(kFolder, "/", entry->d_name).c_str(), &info) == 0 && S_ISBLK(info.st_mode) && info.st_rdev == device)
      found = entry->d_name;
  }
  closedir(folder);
  found.erase(std::remove(found.begin(), found.end(), '-'), found.end());
  return found;
}

uint64_t VolumeBytes(const std::string& folder) {
  struct statvfs info {};
  return statvfs(folder.c_str(), &info) == 0 ? uint64_t{info.f_blocks} * info.f_frsize : 0;
}

MountedDrive Describe(const Mount& mount, const std::string& folder) {
  MountedDrive drive;
  drive.mount_point = mount.point;
  drive.file_system = mount.file_system;
  drive.read_only = mount.options == "ro" || mount.options.rfind("ro,", 0) == 0;
  const std::optional<dev_t> device = BlockDevice(mount);
  drive.block_device = device.has_value();
  if (!device) {
    drive.device = mount.file_system;
    drive.identity = Cat(mount.file_system, ":", mount.source, ":", mount.point, ":", VolumeBytes(folder));
    return drive;
  }
  const fs::path disk = DiskFolder(*device);
  drive.device = disk.filename().string();
  drive.model = FirstLine((disk / "device/model").string());
  drive.counters = SysFolder(*device) + "/stat";
  uint64_t blocks = 0;  // of 512 bytes, whatever the device's own block is
  std::istringstream(FirstLine(SysFolder(*device) + "/size")) >> blocks;
  std::string uuid = FileSystemUuid(folder);
  if (uuid.empty()) uuid = LinkedUuid(*device);
  drive.identity = uuid.empty() ? Cat("dev:", major(*device), ":", minor(*device), ":", blocks * 512)
                                : Cat("uuid:", uuid, ":", blocks * 512);
  return drive;
}

bool IsInside(const std::string& path, const std::string& folder) {
  if (folder == "/") return true;
  return path.compare(0, folder.size(), folder) == 0 && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

Result<MountedDrive> DriveOfFolder(const std::string& folder) {
  std::error_code failed;
  const std::string path = fs::canonical(folder, failed).string();
  if (failed == std::errc::no_such_file_or_directory || failed == std::errc::not_a_directory)
    return Fail(ErrorCode::kNotFound, folder, ": expected a folder, got nothing of that name: is the drive mounted?");
  if (failed) return Fail(ErrorCode::kIo, folder, ": cannot be looked at: ", failed.message());
  if (!fs::is_directory(path, failed))
    return Fail(ErrorCode::kNotFound, folder, ": expected a folder, got something else: name the folder that holds it");
  DFIN_TRY(const std::vector<Mount> mounts, ReadMounts());
  const Mount* best = nullptr;
  // The last of several on one point covers the others.
  for (const Mount& mount : mounts)
    if (IsInside(path, mount.point) && (best == nullptr || mount.point.size() >= best->point.size())) best = &mount;
  if (best == nullptr) return Fail(ErrorCode::kIo, folder, ": lies on no mount of /proc/self/mountinfo");
  return Describe(*best, path);
}

Result<std::vector<MountedDrive>> MountedDrives() {
  DFIN_TRY(const std::vector<Mount> mounts, ReadMounts());
  std::vector<MountedDrive> drives;
  for (const Mount& mount : mounts) {
    std::error_code failed;
    // A single file can be a mount point as well (containers do that).
    if (!BlockDevice(mount) || !fs::is_directory(mount.point, failed)) continue;
    MountedDrive drive = Describe(mount, mount.point);
    const auto same = std::find_if(drives.begin(), drives.end(),
                                   [&](const MountedDrive& other) { return other.identity == drive.identity; });
    if (same == drives.end()) drives.push_back(std::move(drive));
  }
  return drives;
}

}  // namespace deltafin
