#include "checkpoint/dense_source.h"

#include <algorithm>

#include "tensor/bf12.h"

namespace deltafin {

uint64_t DenseSource::alignment() const {
  uint64_t alignment = packed != nullptr ? packed->alignment() : kBf12Alignment;
  for (int i = 0; i < checkpoint->shard_count(); ++i) alignment = std::max(alignment, checkpoint->shard(i).alignment());
  return alignment;
}

}  // namespace deltafin
