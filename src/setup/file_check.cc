#include "setup/file_check.h"

#include "base/digest.h"
#include "pack/model_file_check.h"

namespace deltafin {

Status CheckFile(const std::string& path, const HubFile& file, const std::function<void()>& tick, CancelToken cancel) {
  return CheckModelFile(path, {file.path, file.size, file.sha256, file.git_sha1}, tick, cancel);
}

Status CheckBytes(Bytes bytes, const HubFile& file) {
  if (bytes.size() != file.size)
    return Fail(ErrorCode::kCorrupt, file.path, ": expected ", file.size, " bytes, got ", bytes.size());
  // A folder's list has no checksums: its files are read there again when they are compared.
  if (file.sha256.empty() && file.git_sha1.empty()) return {};
  const bool git = file.sha256.empty();
  DFIN_TRY(Digest digest, git ? Digest::GitSha1(file.size) : Digest::Sha256());
  DFIN_TRY_VOID(digest.Add(bytes));
  DFIN_TRY(const std::string got, digest.Finish());
  const std::string& expected = git ? file.git_sha1 : file.sha256;
  if (expected == got) return {};
  return Fail(ErrorCode::kCorrupt, file.path, ": expected ", git ? "git sha1 " : "sha256 ", expected, ", got ", got);
}

Result<std::string> Sha256OfFile(const std::string& path, uint64_t size, const std::function<void()>& tick,
                                 CancelToken cancel) {
  DFIN_TRY(Digest digest, Digest::Sha256());
  return DigestOfFile(path, size, std::move(digest), tick, cancel);
}

}  // namespace deltafin
