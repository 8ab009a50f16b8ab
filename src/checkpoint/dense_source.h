// DenseSource: where units of dense weights are read from: the shards, or the files of a DenseSet.
//
// The embedding table always comes from the shards. A value type that points to what it names; both outlive it.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_set.h"

namespace deltafin {

struct DenseSource {
  DenseSource(const Checkpoint& checkpoint) : checkpoint(&checkpoint) {}  // NOLINT: implicit, the usual source
  DenseSource(const Checkpoint& checkpoint, const DenseSet* packed, int32_t packed_drive)
      : checkpoint(&checkpoint), packed(packed), packed_drive(packed_drive) {}

  int32_t layers() const { return static_cast<int32_t>(checkpoint->spec().layers.size()); }
  // File `index` of the set (a unit), or of the checkpoint (a shard); and the scheduler's drive for it.
  const DirectFile& file(bool of_set, int32_t index) const {
    return of_set ? packed->file(index) : checkpoint->shard(index);
  }
  int32_t drive(bool of_set, int32_t index) const { return of_set ? packed_drive : checkpoint->shard_drive(index); }
  // What unit buffers must be aligned to: the largest alignment among the files.
  uint64_t alignment() const;

  const Checkpoint* checkpoint;
  const DenseSet* packed = nullptr;  // null: units come from the shards
  int32_t packed_drive = 0;
};

}  // namespace deltafin
