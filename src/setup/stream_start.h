// stream_start: makes a folder one whose experts are fetched as they are routed: small files, and a manifest.
//
// Everything in the root of the repository that is no shard (and no file of deltafin's own) is fetched and compared
// with its listed checksum; the shards that model.safetensors.index.json names are put down in the manifest with the
// commit that the revision means now. The manifest is written last, so a folder that has one has all of that. A folder
// that is one already stays at its commit. Nobody else works in the folder from before anything in it is looked at
// until the end. Functions without state. Errors: those of HubClient; kInvalidArgument for a folder that holds
// something else; kCorrupt; kUnavailable when another deltafin is at work there.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "checkpoint/stream_folder.h"
#include "pack/folder_locks.h"
#include "setup/hub_client.h"
#include "setup/setup.h"

namespace deltafin {

struct StreamStartOptions {
  bool revision_given = false;  // by the user: a folder of another revision is refused
  bool endpoint_given = false;  // by the user: the folder's files come from there from now on
  std::function<void(const std::string&)> on_note = {};
  std::function<void(const std::string&)> on_phase = {};  // "fetching NAME"
  CancelToken cancel = {};
};

struct StartedStream {
  FolderLocks lock;  // outlives the folder
  std::unique_ptr<StreamFolder> folder;
};

Result<StartedStream> StartStream(HubClient& hub, const std::string& folder, const StreamStartOptions& options);

// What it would bring, and the room that it takes: of everything, or of all but the experts. Writes nothing.
Result<SetupReport> PlanStream(HubClient& hub, const std::string& folder, bool dense_only,
                               const StreamStartOptions& options);

}  // namespace deltafin
