// WeightFiles: everything that weights are read from: the checkpoint, the expert set if there is one, and their drives.
//
// Opened together, because the I/O scheduler needs all drives at once: the checkpoint's first, then the set's. Holds no
// weights. Immutable once open. Errors: those of Checkpoint::Open and ExpertSet::Open, and kInvalidArgument for options
// that do not go together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/expert_store.h"
#include "engine/engine_options.h"
#include "io/io_scheduler.h"

namespace deltafin {

struct WeightFiles {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<ExpertSet> set;  // null: experts come from the shards
  std::vector<DriveInfo> drives;   // of the scheduler
  int32_t first_set_drive = 0;

  // Folders of the set: options.experts, else those that pack noted for this model.
  static Result<WeightFiles> Open(const EngineOptions& options, Logger& logger, CancelToken cancel,
                                  const std::function<void(uint64_t done, uint64_t total)>& progress);

  std::unique_ptr<ExpertStore> MakeStore(IoScheduler& io, bool verify_reads) const;
  // The set must have been packed from this very model. Reads a few kilobytes.
  Status CheckSet(IoScheduler& io, CancelToken cancel) const;
  // Every expert can be read in two ways.
  bool copies() const;
};

}  // namespace deltafin
