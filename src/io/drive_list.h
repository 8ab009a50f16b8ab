// drive_list: which drives this machine has mounted, and which one lies under a folder.
//
// Linux reads /proc/self/mountinfo and /sys; elsewhere only the drive of a given folder is known, and the list is
// kUnavailable. One of drive_list_linux.cc and drive_list_posix.cc is linked. Reads no file of a drive, writes nothing.
// Functions without state; thread-safe. Errors: kNotFound (no such folder), kIo, kUnavailable.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace deltafin {

struct MountedDrive {
  std::string identity;      // the same after a reboot and on another mount point, where the file system has a UUID
  std::string device;        // "nvme0n1"; the file system's kind where there is no device
  std::string model;         // of the hardware; "" when unknown
  std::string mount_point;   // "" when unknown
  std::string file_system;   // "ext4"; "" when unknown
  bool block_device = true;  // a drive of this machine, neither network nor memory
  bool read_only = false;    // as mounted
  std::string counters;      // the file with the kernel's counters of the partition or device; "": there is none
};

// The drive under `folder`.
Result<MountedDrive> DriveOfFolder(const std::string& folder);
// Every mounted block device once, in the order they were mounted.
Result<std::vector<MountedDrive>> MountedDrives();

}  // namespace deltafin
