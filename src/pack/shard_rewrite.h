// shard_rewrite: replaces a shard by one of the same name that holds only its tensors which are no routed experts.
//
// Their bytes are the same; the header's __metadata__ says where the experts went: the set's id under kExpertsMovedTo
// (checkpoint/safetensors.h), its folders under kExpertsMovedFolders. The index of the model stays valid. Atomic: at
// every moment the name is the old or the new file. Errors: kCorrupt, kIo, kUnavailable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

// A JSON list of absolute paths, as text: where the set was then.
inline constexpr std::string_view kExpertsMovedFolders = "deltafin_experts_folders";

Status EmptyShard(const DiskHook& hook, const std::string& path, uint64_t set_id,
                  const std::vector<std::string>& folders);

}  // namespace deltafin
