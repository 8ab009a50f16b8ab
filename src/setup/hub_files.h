// HubFiles: the files of a streamed folder, from the hub that its manifest names: ranges of one commit.
//
// Owns its HTTP client. Thread-safe, as RemoteFiles wants it. What a range is checked against: its length and place as
// the server states them, the file's size, commit and checksum as the server states them; a range alone has no
// checksum that anybody published. Errors: those of HubClient.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/remote_files.h"
#include "setup/http_client.h"
#include "setup/hub_client.h"

namespace deltafin {

class HubFiles final : public RemoteFiles {
 public:
  // `hub`: token, mirror, retries; endpoint, repository and commit are the manifest's.
  static Result<std::unique_ptr<RemoteFiles>> Open(const StreamManifest& manifest, HttpClientOptions http,
                                                   HubOptions hub);

  Status Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) override;

 private:
  HubFiles() = default;

  SleepingWaiter waiter_;
  std::unique_ptr<HttpClient> http_;
  std::unique_ptr<HubClient> hub_;
};

}  // namespace deltafin
