// StreamPlaces: which byte range of which file of a streamed folder an expert of its checkpoint is.
//
// Points to both, which outlive it. Immutable; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stream_folder.h"

namespace deltafin {

class StreamPlaces {
 public:
  StreamPlaces(const Checkpoint& checkpoint, const StreamFolder& folder) : checkpoint_(checkpoint) {
    for (int i = 0; i < checkpoint.shard_count(); ++i) {
      const std::string& path = checkpoint.shard(i).path();
      file_of_shard_.push_back(folder.manifest().Find(path.substr(path.rfind('/') + 1)));
    }
    bytes_ = static_cast<uint64_t>(ExpertGeometry(checkpoint.spec()).record_bytes());
  }

  // Empty for a shard that the manifest does not name: a whole file that somebody put there.
  std::optional<FileRange> Of(ExpertKey key) const {
    const ExpertPlace& place = checkpoint_.Expert(key);
    const int32_t file = file_of_shard_[static_cast<size_t>(place.shard)];
    if (file < 0) return std::nullopt;
    return FileRange{file, place.offset, bytes_};
  }

 private:
  const Checkpoint& checkpoint_;
  std::vector<int32_t> file_of_shard_;
  uint64_t bytes_ = 0;
};

}  // namespace deltafin
