#include "setup/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/json.h"
#include "setup/file_check.h"
#include "setup/hub_listing.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

std::string FolderOfRepo(const std::string& repo) {
  std::string name = "models--";
  for (const char c : repo) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

Result<std::string> CommitOf(const fs::path& repo, const std::string& revision) {
  std::error_code ignored;
  if (IsCommit(revision) && fs::is_directory(repo / "snapshots" / revision, ignored)) return revision;
  const fs::path ref = repo / "refs" / revision;
  Result<std::string> text = ReadWholeFile(ref.string(), 1024);
  if (!text)
    return Fail(ErrorCode::kNotFound, ref.string(), ": expected the commit of revision ", revision,
                ", got no such file: is it another revision (--revision), or not downloaded yet?");
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  if (!IsCommit(*text)) return Fail(ErrorCode::kCorrupt, ref.string(), ": expected a commit, got something else");
  return *text;
}

struct Blob {
  std::string name;  // in the snapshot
  HubFile file;      // size and the checksum that it is named by; without one it is no blob
  bool there = true;
};

std::vector<Blob> BlobsOf(const fs::path& snapshot, std::error_code& failed) {
  std::vector<Blob> blobs;
  for (fs::recursive_directory_iterator it(snapshot, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code ignored;
    if (fs::is_directory(it->symlink_status(ignored))) continue;
    Blob blob;
    blob.name = it->path().lexically_relative(snapshot).generic_string();
    blob.there = fs::is_regular_file(it->path(), ignored);
    const std::string target = fs::read_symlink(it->path(), ignored).filename().string();
    const bool hex = IsCommit(target);  // 40 digits name a git blob, 64 are a sha256
    if (hex) (target.size() == 64 ? blob.file.sha256 : blob.file.git_sha1) = target;
    if (blob.there) blob.file.size = static_cast<uint64_t>(fs::file_size(it->path(), ignored));
    blobs.push_back(std::move(blob));
  }
  std::sort(blobs.begin(), blobs.end(), [](const Blob& a, const Blob& b) { return a.name < b.name; });
  return blobs;
}

}  // namespace

Result<HubSnapshot> FindHubSnapshot(const std::string& cache, const std::string& repo, const std::string& revision) {
  if (repo.find("..") != std::string::npos || revision.find("..") != std::string::npos || revision.starts_with('/'))
    return Fail(ErrorCode::kInvalidArgument, "repository and revision: expected names without \"..\"");
  const fs::path folder = fs::path(cache) / FolderOfRepo(repo);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    return Fail(ErrorCode::kNotFound, folder.string(), ": expected the hub's cache of ", repo,
                ", got no such folder: name the cache's folder after --from-cache");
  DFIN_TRY(const std::string commit, CommitOf(folder, revision));
  const fs::path snapshot = folder / "snapshots" / commit;
  if (!fs::is_directory(snapshot, ignored))
    return Fail(ErrorCode::kNotFound, snapshot.string(), ": expected the snapshot of revision ", revision,
                ", got no such folder: the download was not finished");
  return HubSnapshot{snapshot.string(), commit};
}

Result<SnapshotCheck> CheckHubSnapshot(
    const HubSnapshot& snapshot,
    const std::function<void(const std::string& file, uint64_t bytes_done, uint64_t bytes_total)>& progress,
    CancelToken cancel) {
  std::error_code failed;
  const std::vector<Blob> blobs = BlobsOf(snapshot.folder, failed);
  if (failed) return Fail(ErrorCode::kIo, snapshot.folder, ": ", failed.message());
  SnapshotCheck check;
  for (const Blob& blob : blobs) check.bytes += blob.file.size;
  uint64_t done = 0;
  for (const Blob& blob : blobs) {
    ++check.files;
    const std::string path = snapshot.folder + "/" + blob.name;
    if (!blob.there) {
      check.faults.push_back(path + ": its blob is missing: the download was not finished");
      continue;
    }
    if (blob.file.sha256.empty() && blob.file.git_sha1.empty()) {
      check.unchecked.push_back(path);
      done += blob.file.size;
      continue;
    }
    if (progress) progress(blob.name, done, check.bytes);
    uint64_t pieces = 0;
    const auto tick = [&] {
      if (progress) progress(blob.name, std::min(check.bytes, done + ++pieces * kCheckPieceBytes), check.bytes);
    };
    const Status right = CheckFile(path, blob.file, tick, cancel);
    if (!right && right.error().code() != ErrorCode::kCorrupt) return Failure(Error(right.error()));
    if (!right) check.faults.push_back(right.error().message());
    done += blob.file.size;
  }
  return check;
}

}  // namespace deltafin
