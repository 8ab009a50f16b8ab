// shard_stream: reads experts from the shards for whoever packs, compares or verifies them.
//
// Functions without state. A list and its files outlive the stream that reads them. Errors: those of opening a file.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "io/direct_file.h"
#include "pack/pack_source.h"
#include "pack/record_stream.h"

namespace deltafin {

using ExpertList = std::vector<const SourceExpert*>;
using ShardFiles = std::vector<DirectFile>;  // by shard; those that the list does not need are not open

Result<ShardFiles> OpenShards(const PackSource& source, const ExpertList& list);

// The experts of `list` in order; ViewSource() takes what lies in an item's buffer. At most `buffers` at once.
Result<std::unique_ptr<RecordStream>> ReadExperts(IoScheduler& io, const PackSource& source, const ExpertList& list,
                                                  const ShardFiles& files, size_t buffers);

}  // namespace deltafin
