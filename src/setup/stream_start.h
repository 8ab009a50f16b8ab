// stream_start: makes a folder one whose experts are fetched as they are routed: small files, and a manifest.
//
// Everything in the root of the repository that is no shard is fetched and compared with its listed checksum; the
// shards that model.safetensors.index.json names are put down in the manifest with the commit that the revision means
// now. The manifest is written last, so a folder that has one has all of that. A folder that is one already stays at
// its commit. Functions without state. Errors: those of HubClient; kInvalidArgument for a folder that holds something
// else; kCorrupt.
#pragma once

#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/stream_folder.h"
#include "setup/hub_client.h"

namespace deltafin {

// `revision_given`: by the user; then a folder of another revision is refused.
Result<std::unique_ptr<StreamFolder>> StartStream(HubClient& hub, const std::string& folder, bool revision_given,
                                                  CancelToken cancel);

}  // namespace deltafin
