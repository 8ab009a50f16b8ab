#include "setup/hub_files.h"

#include <cstring>

#include "checkpoint/read_twice.h"

namespace deltafin {

Result<CheckTwice> ParseCheckTwice(const std::string& text) {
  if (text == "auto") return CheckTwice::kAuto;
  if (text == "on" || text.empty()) return CheckTwice::kOn;
  if (text == "off") return CheckTwice::kOff;
  return Fail(ErrorCode::kInvalidArgument, "--check-twice ", text, ": expected auto, on or off");
}

Result<std::string> EndpointFor(const StreamManifest& manifest, const HubOptions& hub, bool endpoint_given) {
  if (endpoint_given) return hub.endpoint;
  if (hub.token.empty()) return manifest.endpoint;
  DFIN_TRY(const std::string there, OriginOf(manifest.endpoint));
  DFIN_TRY(const std::string usual, OriginOf(HubOptions{}.endpoint));
  if (there == usual) return manifest.endpoint;
  return Fail(ErrorCode::kInvalidArgument, "--token-file: expected the token to go to ", HubOptions{}.endpoint,
              ", got a model that comes from ", manifest.endpoint, ": give --endpoint ", manifest.endpoint,
              " too if the token is meant for it, or leave --token-file out");
}

bool ReadsTwice(const HubAccess& access) {
  if (access.check_twice != CheckTwice::kAuto) return access.check_twice == CheckTwice::kOn;
  // From https no redirect leads to http (setup/http_client.h).
  return !(access.hub.mirror.empty() ? access.hub.endpoint : access.hub.mirror).starts_with("https:");
}

Result<std::unique_ptr<RemoteFiles>> HubFiles::Open(const StreamManifest& manifest, HubAccess access) {
  DFIN_TRY(access.hub.endpoint, EndpointFor(manifest, access.hub, access.endpoint_given));
  access.hub.repo = manifest.repository;
  access.hub.revision = manifest.revision;
  const bool twice = ReadsTwice(access);
  std::unique_ptr<HubFiles> files(new HubFiles);
  DFIN_TRY(files->http_, HttpClient::Create(std::move(access.http)));
  DFIN_TRY(files->hub_, HubClient::Create(*files->http_, files->waiter_, std::move(access.hub)));
  files->hub_->UseCommit(manifest.commit);
  if (twice) return std::unique_ptr<RemoteFiles>(std::make_unique<ReadTwice>(std::move(files)));
  return std::unique_ptr<RemoteFiles>(std::move(files));
}

Status HubFiles::Read(const StreamFile& file, uint64_t offset, MutBytes out, CancelToken cancel) {
  const HubFile wanted{file.name, file.bytes, file.sha256, file.git_sha1};
  uint64_t came = 0;
  const auto sink = [&](uint64_t at, Bytes bytes) -> Status {
    if (at != offset + came || bytes.size() > out.size() - came)
      return Fail(ErrorCode::kCorrupt, file.name, ": expected bytes ", offset + came, " on, got ", bytes.size(),
                  " bytes at ", at);
    std::memcpy(out.data() + came, bytes.data(), bytes.size());
    came += bytes.size();
    return {};
  };
  Status fetched = hub_->FetchRange(wanted, offset, out.size(), sink, cancel);
  if (!fetched && fetched.error().code() == ErrorCode::kUnsupported)
    return Fail(ErrorCode::kUnsupported, fetched.error().message(),
                ", so parts of a model cannot be fetched from it: `deltafin setup` without --dense-only, into another "
                "folder, can fetch the whole");
  if (!fetched) return fetched;
  if (came == out.size()) return {};
  return Fail(ErrorCode::kCorrupt, file.name, ": expected ", out.size(), " bytes at ", offset, ", got ", came);
}

}  // namespace deltafin
