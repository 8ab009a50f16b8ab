#include "setup/stream_start.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/index_file.h"
#include "checkpoint/safetensors.h"
#include "pack/disk.h"
#include "base/digest.h"
#include "setup/setup_journal.h"

namespace deltafin {
namespace {

constexpr std::string_view kShardEnd = ".safetensors";

Result<std::string> ChecksumOf(const HubFile& file, std::string_view text) {
  DFIN_TRY(Digest digest, file.sha256.empty() ? Digest::GitSha1(file.size) : Digest::Sha256());
  DFIN_TRY_VOID(digest.Add(std::as_bytes(std::span(text))));
  return digest.Finish();
}

// Fetched, unless the folder has it.
Status BringSmallFile(HubClient& hub, const HubFile& file, const std::string& folder, CancelToken cancel) {
  const std::string path = Cat(folder, "/", file.path);
  const std::string& expected = file.sha256.empty() ? file.git_sha1 : file.sha256;
  if (FileExists(path)) {
    DFIN_TRY(const std::string there, ReadWholeFile(path, kMaxIndexBytes));
    DFIN_TRY(const std::string sum, ChecksumOf(file, there));
    if (sum == expected) return {};
    return Fail(ErrorCode::kInvalidArgument, path, ": expected this file of ", hub.options().repo, " at commit ",
                hub.commit(), ", got another one: use another folder, or move it away");
  }
  DFIN_TRY(const std::string text, hub.FetchText(file, kMaxIndexBytes, cancel));
  DFIN_TRY(const std::string sum, ChecksumOf(file, text));
  if (sum != expected)
    return Fail(ErrorCode::kCorrupt, hub.FileUrl(file), ": expected checksum ", expected, " as listed, got ", sum,
                ": the hub or the connection damages data");
  return WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

// The shards that the index names; without an index the one that holds everything.
Result<std::set<std::string>> ShardNames(const std::string& folder) {
  std::set<std::string> names;
  const std::string path = Cat(folder, "/", kIndexFileName);
  if (!FileExists(path)) return std::set<std::string>{kSingleFileName};
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxIndexBytes));
  DFIN_TRY_VOID(ParseIndex(text, path, [&](std::string_view, std::string_view shard) -> Status {
    names.emplace(shard);
    return {};
  }));
  return names;
}

Result<StreamManifest> MakeManifest(const HubClient& hub, const HubListing& listing, const std::string& folder) {
  StreamManifest manifest;
  manifest.endpoint = hub.options().endpoint;
  manifest.repository = hub.options().repo;
  manifest.revision = hub.options().revision;
  manifest.commit = listing.commit;
  DFIN_TRY(const std::set<std::string> names, ShardNames(folder));
  for (const std::string& name : names) {
    const auto it = std::find_if(listing.files.begin(), listing.files.end(),
                                 [&](const HubFile& file) { return file.path == name; });
    if (it == listing.files.end())
      return Fail(ErrorCode::kCorrupt, hub.options().repo, ": expected ", name, " in the file list, as ",
                  kIndexFileName, " says, got none: the repository is not complete");
    manifest.files.push_back({it->path, it->size, it->sha256, it->git_sha1});
  }
  return manifest;
}

Status CheckSame(const StreamManifest& manifest, const HubClient& hub, const std::string& folder, bool revision_given) {
  const HubOptions& asked = hub.options();
  if (manifest.repository != asked.repo)
    return Fail(ErrorCode::kInvalidArgument, folder, ": expected a folder for ", asked.repo, ", got one of ",
                manifest.repository, ": use another folder");
  if (revision_given && asked.revision != manifest.revision && asked.revision != manifest.commit)
    return Fail(ErrorCode::kInvalidArgument, folder, ": expected a folder of revision ", asked.revision,
                ", got one that was begun with ", manifest.revision, " (commit ", manifest.commit,
                "): leave --revision out, or use another folder");
  return {};
}

}  // namespace

Result<std::unique_ptr<StreamFolder>> StartStream(HubClient& hub, const std::string& folder, bool revision_given,
                                                  CancelToken cancel) {
  DFIN_TRY_VOID(MakeWritableFolder(folder));
  DFIN_TRY_VOID(RemoveUnpublished({}, folder, ""));
  if (!IsStreamedFolder(folder)) {
    if (FileExists(Cat(folder, "/", kSetupJournalName)))
      return Fail(ErrorCode::kInvalidArgument, folder,
                  ": expected a new folder for --dense-only, got one that setup fetches, or has fetched, whole shards "
                  "into: leave --dense-only out, or use another folder");
    DFIN_TRY(const HubListing listing, hub.List("", cancel));
    for (const HubFile& file : listing.files)
      if (file.path.find('/') == std::string::npos && !file.path.ends_with(kShardEnd))
        DFIN_TRY_VOID(BringSmallFile(hub, file, folder, cancel));
    DFIN_TRY(const StreamManifest manifest, MakeManifest(hub, listing, folder));
    DFIN_TRY_VOID(StreamFolder::Create(folder, manifest));
  }
  DFIN_TRY(std::unique_ptr<StreamFolder> opened, StreamFolder::Open(folder, StreamFolder::Use::kFetch));
  DFIN_TRY_VOID(CheckSame(opened->manifest(), hub, folder, revision_given));
  hub.UseCommit(opened->manifest().commit);
  return opened;
}

}  // namespace deltafin
