// ExpertModelId: a number for the model that experts belong to, so that an expert set is not used with another model.
//
// XXH3 over the shape of the experts and the router's correction bias of every MoE layer: a few kilobytes that differ
// between any two trainings. Read through the scheduler, from the dense tensors, so it does not change when experts
// move. Never 0. Functions without state; thread-safe; errors name the tensor (kNotFound when its shard is missing) or
// are the reads'.
#pragma once

#include <cstdint>

#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set_manifest.h"
#include "io/io_scheduler.h"

namespace deltafin {

Result<uint64_t> ExpertModelId(const Checkpoint& checkpoint, IoScheduler& io, CancelToken cancel = {});

// kCorrupt when the set was packed from another model (or from so little of one that it could not be told:
// model_id 0).
Status CheckExpertModel(const ExpertSetManifest& manifest, uint64_t model_id);

}  // namespace deltafin
