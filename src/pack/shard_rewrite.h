// shard_rewrite: replaces a shard by one of the same name that holds only its tensors which are no routed experts.
//
// Their bytes are the same; the header's __metadata__ says where the experts went, under kExpertsMovedTo
// (checkpoint/safetensors.h). The index of the
// model stays valid. Atomic: at every moment the name is the old or the new file. Errors: kCorrupt, kIo, kUnavailable.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "pack/disk.h"

namespace deltafin {

Status EmptyShard(const DiskHook& hook, const std::string& path, uint64_t set_id);

}  // namespace deltafin
