// ModelSource: where setup gets a model from: a repository on a hub, or a folder that holds a download.
//
// Interface and its two implementations. A source writes nothing. Thread-safe after List(). Errors are those of
// HubClient, or kIo and kNotFound of files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/json.h"
#include "base/result.h"
#include "setup/hub_client.h"
#include "setup/hub_listing.h"

namespace deltafin {

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // What the journal says of it: a download goes on only from the same source.
  virtual Json Identity() const = 0;
  virtual std::string Name() const = 0;  // for messages
  // `commit`: as an earlier call listed it, or "".
  virtual Result<HubListing> List(const std::string& commit, CancelToken cancel) = 0;
  // A sentence when the source has changed since `commit`; "" when it has not, or that cannot be told.
  virtual std::string ChangedSince(const std::string& commit, CancelToken cancel) = 0;
  // As HubClient says.
  virtual Status FetchRange(const HubFile& file, uint64_t offset, uint64_t length, const RangeSink& sink,
                            CancelToken cancel) = 0;
  virtual Status FetchWhole(const HubFile& file, const RangeSink& sink, CancelToken cancel) = 0;
  // `file` with a checksum; a folder has to read it for that. `tick` is called now and then.
  virtual Result<HubFile> WithChecksum(const HubFile& file, const std::function<void()>& tick, CancelToken cancel) = 0;
};

// The client outlives the source.
std::unique_ptr<ModelSource> MakeHubSource(HubClient& hub);
// Regular files below `folder`, links followed. kNotFound, kInvalidArgument when it is no folder.
Result<std::unique_ptr<ModelSource>> MakeFolderSource(const std::string& folder);

// A small file in memory. kCorrupt when it is larger than `max_bytes` or its checksum is wrong.
Result<std::string> FetchText(ModelSource& source, const HubFile& file, uint64_t max_bytes, CancelToken cancel);

}  // namespace deltafin
