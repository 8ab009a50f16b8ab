// HubFiles: the files of a streamed folder, from the hub that its manifest names: ranges of one commit.
//
// Owns its HTTP client. Thread-safe, as RemoteFiles wants it. What a range is checked against: its length and place as
// the server states them, the file's size, commit and checksum as the server states them; a range alone has no
// checksum that anybody published. Over https nobody on the way can have changed it; else it comes twice and is
// compared, unless told otherwise. Errors: those of HubClient; kInvalidArgument for a token that would go to a server
// that the user did not name; kUnsupported, with what else to do, for a server that ignores ranges.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/remote_files.h"
#include "setup/http_client.h"
#include "setup/hub_client.h"

namespace deltafin {

enum class CheckTwice : uint8_t {
  kAuto,  // where the connection does not protect what crosses it: all but https
  kOn,
  kOff,
};
// "auto", "on" or "off"; "" is on: the option without a value.
Result<CheckTwice> ParseCheckTwice(const std::string& text);

struct HubAccess {
  HttpClientOptions http = {};
  HubOptions hub = {};          // repository and revision are the manifest's
  bool endpoint_given = false;  // hub.endpoint is to be used, not the manifest's
  CheckTwice check_twice = CheckTwice::kAuto;
};

// Where the files of this manifest come from. kInvalidArgument: a token goes only to an endpoint that the user named,
// or to the hub that is asked by default.
Result<std::string> EndpointFor(const StreamManifest& manifest, const HubOptions& hub, bool endpoint_given);
// Whether ranges come twice.
bool ReadsTwice(const HubAccess& access);

class HubFiles final : public RemoteFiles {
 public:
  static Result<std::unique_ptr<RemoteFiles>> Open(const StreamManifest& manifest, HubAccess access);

  Status Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) override;

 private:
  HubFiles() = default;

  SleepingWaiter waiter_;
  std::unique_ptr<HttpClient> http_;
  std::unique_ptr<HubClient> hub_;
};

}  // namespace deltafin
