// DenseModelId: a number for the dense weights of a model, so that packed ones are not used with another model.
//
// XXH3 over names, types, shapes and the first 4 KiB of every dense tensor but the embedding table, in the order of
// names: a few megabytes that differ between any two trainings. Independent of how tensors are spread over shards.
// Never 0. Read through the scheduler. Functions without state; thread-safe; errors are the reads', and kCancelled.
#pragma once

#include <cstdint>

#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "io/io_scheduler.h"

namespace deltafin {

Result<uint64_t> DenseModelId(const Checkpoint& checkpoint, IoScheduler& io, CancelToken cancel = {});

}  // namespace deltafin
