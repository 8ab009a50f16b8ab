// WeightFiles: everything that weights are read from: the checkpoint, packed dense weights and the expert set if there
// are such, and their drives.
//
// Opened together, because the I/O scheduler needs all drives at once: the checkpoint's first, then the set's, then
// that of the packed dense weights if it is none of those. Holds no weights. Immutable once open. Errors: those of
// Checkpoint::Open, DenseSet::Open and ExpertSet::Open, and kInvalidArgument for options that do not go together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_source.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/expert_store.h"
#include "checkpoint/stream_folder.h"
#include "checkpoint/streamed_experts.h"
#include "engine/engine_options.h"
#include "io/io_scheduler.h"

namespace deltafin {

struct WeightFiles {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<DenseSet> dense;  // null: dense weights come from the shards
  std::unique_ptr<ExpertSet> set;   // null: experts come from the shards
  // Not null: the shards are not whole, experts are fetched into them as they are routed.
  std::unique_ptr<StreamFolder> stream;
  std::vector<DriveInfo> drives;  // of the scheduler
  int32_t dense_drive = 0;
  int32_t first_set_drive = 0;

  // Folders of the set: options.experts, else those that pack noted for this model.
  static Result<WeightFiles> Open(const EngineOptions& options, Logger& logger, CancelToken cancel,
                                  const std::function<void(uint64_t done, uint64_t total)>& progress);

  DenseSource dense_source() const { return {*checkpoint, dense.get(), dense_drive}; }
  std::unique_ptr<ExpertStore> MakeStore(IoScheduler& io, bool verify_reads) const;
  // Over `disk`, for a streamed folder; else null. Without a factory nothing but StreamOptions::offline will do.
  Result<std::unique_ptr<StreamedExperts>> MakeStream(const EngineOptions& options, ExpertSource& disk,
                                                      const RemoteFilesFactory& remote_files, const Clock& clock) const;
  // The set and the packed dense weights must be of this very model. Reads a few kilobytes, a few megabytes.
  Status CheckModel(IoScheduler& io, CancelToken cancel) const;
  // Every expert can be read in two ways.
  bool copies() const;

 private:
  // `noted`: by pack, not named by an option.
  Status OpenSet(const std::vector<std::string>& folders, bool noted, const EngineOptions& options,
                 const ReadsBuffered& reads_buffered, Logger& logger);
  Status OpenStream(const EngineOptions& options, Logger& logger, bool streamed);
  Status OpenDense(const EngineOptions& options, const ReadsBuffered& reads_buffered, Logger& logger);
};

}  // namespace deltafin
