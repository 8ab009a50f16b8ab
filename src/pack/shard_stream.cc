#include "pack/shard_stream.h"

#include <algorithm>

namespace deltafin {

Result<ShardFiles> OpenShards(const PackSource& source, const ExpertList& list) {
  ShardFiles files(source.shards.size());
  for (const SourceExpert* expert : list) {
    const auto shard = static_cast<size_t>(expert->shard);
    if (files[shard].fd() >= 0) continue;
    DFIN_TRY(files[shard], DirectFile::Open(source.shards[shard]));
  }
  return files;
}

Result<std::unique_ptr<RecordStream>> ReadExperts(IoScheduler& io, const PackSource& source, const ExpertList& list,
                                                  const ShardFiles& files, size_t buffers) {
  constexpr uint64_t kPage = 4096;
  uint64_t alignment = kPage;
  for (const DirectFile& file : files) alignment = std::max(alignment, file.alignment());
  const auto wanted = static_cast<uint64_t>(source.geometry().record_bytes());
  const auto parts = [&list, &files, wanted](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    out[0] = ReadPart();
    out[0].request = {&files[static_cast<size_t>(list[i]->shard)], list[i]->offset, wanted, buffer};
    return 1;
  };
  const uint64_t slot_bytes = AlignUp(WidenedBytesAnywhere(wanted, alignment), alignment);
  return RecordStream::Create(io, list.size(), buffers, slot_bytes, parts);
}

}  // namespace deltafin
