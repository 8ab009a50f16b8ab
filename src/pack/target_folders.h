// target_folders: the folders that pack and rebalance write to: made, writable, each once, free of foreign files, with
// room.
//
// Only the last part of a path is made: where a drive is not mounted its folders must not appear on the disk below.
// Functions without state. Errors: kInvalidArgument (a file, a folder twice, a file in the way), kIo (not there, not
// writable), kUnavailable (space: needed and free, per drive).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pack/pack.h"

namespace deltafin {

// That they can be: 1 to 64, each once. Makes nothing.
Status CheckTargets(const std::vector<PackTarget>& targets);
// Target folders with their full paths: made, writable, each once. Nothing is made when one of them cannot be.
Result<std::vector<std::string>> PrepareFolders(const std::vector<PackTarget>& targets);
// Sentences about folders that share a device.
std::vector<std::string> SharedDevices(const std::vector<std::string>& folders);
// kInvalidArgument naming the first file that is in the way of a new set.
Status CheckNothingInTheWay(const std::vector<std::string>& folders, std::string_view prefix);

struct SpaceNeed {
  std::string folder;
  uint64_t bytes = 0;
};
// Adds up folders on one device. `freed` bytes of `freed_in` come back while the work goes on.
Status CheckSpace(const std::vector<SpaceNeed>& needs, const std::string& freed_in, uint64_t freed);

}  // namespace deltafin
