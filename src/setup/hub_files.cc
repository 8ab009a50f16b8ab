#include "setup/hub_files.h"

#include <cstring>

namespace deltafin {

Result<std::unique_ptr<RemoteFiles>> HubFiles::Open(const StreamManifest& manifest, HttpClientOptions http,
                                                    HubOptions hub) {
  std::unique_ptr<HubFiles> files(new HubFiles);
  hub.endpoint = manifest.endpoint;
  hub.repo = manifest.repository;
  hub.revision = manifest.revision;
  DFIN_TRY(files->http_, HttpClient::Create(std::move(http)));
  DFIN_TRY(files->hub_, HubClient::Create(*files->http_, files->waiter_, std::move(hub)));
  files->hub_->UseCommit(manifest.commit);
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
  DFIN_TRY_VOID(hub_->FetchRange(wanted, offset, out.size(), sink, cancel));
  if (came == out.size()) return {};
  return Fail(ErrorCode::kCorrupt, file.name, ": expected ", out.size(), " bytes at ", offset, ", got ", came);
}

}  // namespace deltafin
