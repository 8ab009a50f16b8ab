// disk: everything that pack changes on drives besides pieces of records: folders, whole small files, removals.
//
// Every change, here and in output_file.h, is announced to a hook first, so that tests can end the process there or
// pretend that a drive is full. Functions without state; thread-safe if the hook is. Errors: kIo, and kUnavailable when
// there is no space left.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace deltafin {

enum class DiskStep : uint8_t { kWrite, kSync, kPublish, kRemove, kResize };

// Called before each change, from several threads. An error makes the step fail with it.
using DiskHook = std::function<Status(DiskStep step, const std::string& path)>;

inline Status Announce(const DiskHook& hook, DiskStep step, const std::string& path) {
  return hook ? hook(step, path) : Status();
}

// "writing PATH: text of the system"; kUnavailable for a full drive.
Failure DiskFailure(std::string_view doing, const std::string& path, int error_number);

// That `folder` is one, or can be made in a parent that is there. kInvalidArgument when one of them is no folder, kIo
// naming the first part of the path that is missing.
Status CheckFolderCanBe(const std::string& folder);
// Made when it is missing, its parents are not; must be writable. Errors as above; kIo when it cannot be written.
Status MakeWritableFolder(const std::string& folder);
// Absolute, links resolved as far as it exists.
std::string FullPath(const std::string& path);
bool FileExists(const std::string& path);
// What the file takes on its drive; 0 when it is not there.
uint64_t AllocatedBytes(const std::string& path);
// Names of the entries of `folder` that begin with `prefix`, sorted; empty when it cannot be listed.
std::vector<std::string> ListFiles(const std::string& folder, std::string_view prefix);

// All or nothing (checkpoint/atomic_file.h), durable on return.
Status PublishFile(const DiskHook& hook, const std::string& path, Bytes bytes);
// Makes names in it durable; some file systems refuse, which is no error.
void SyncFolder(const std::string& folder);
// No error when it is not there. Durable on return.
Status RemoveFile(const DiskHook& hook, const std::string& path);
// What processes that are no more left of files that they were publishing under names that begin with `prefix`.
Status RemoveUnpublished(const DiskHook& hook, const std::string& folder, std::string_view prefix);

// The first range at or after `offset` that is no hole; false at the end of the file.
bool NextData(int fd, uint64_t offset, uint64_t* begin, uint64_t* end);

struct DeviceSpace {
  uint64_t device = 0;  // equal numbers: the same file system
  uint64_t free_bytes = 0;
};
Result<DeviceSpace> SpaceOf(const std::string& folder);

}  // namespace deltafin
