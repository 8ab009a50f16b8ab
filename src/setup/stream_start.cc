#include "setup/stream_start.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/digest.h"
#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/index_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_file.h"
#include "pack/disk.h"
#include "setup/file_check.h"
#include "setup/own_names.h"
#include "setup/setup_journal.h"
#include "setup/setup_space.h"
#include "spec/expert_record.h"
#include "spec/model_spec.h"

namespace deltafin {
namespace {

constexpr std::string_view kShardEnd = ".safetensors";

constexpr uint64_t kLargeFile = uint64_t{8} << 20;  // fetched as a range, which goes on after a failure
constexpr int kMostTries = 5;                       // of a file whose checksum is wrong

bool IsShard(const HubFile& file) { return file.path.ends_with(kShardEnd); }

// Those of the root that are no shards.
std::vector<HubFile> SmallFiles(const HubListing& listing, const StreamStartOptions& options) {
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    if (file.path.find('/') != std::string::npos || IsShard(file) || IsHiddenName(file.path)) continue;
    if (!IsOwnName(file.path))
      files.push_back(file);
    else if (options.on_note)
      options.on_note(file.path + ": left out: files of that name are deltafin's own");
  }
  return files;
}

// The contents as they arrive, from the beginning again when they begin again.
class Arriving {
 public:
  Arriving(const HubFile& file, const std::string& path) : file_(file), path_(path) {}

  Status Add(uint64_t offset, Bytes bytes) {
    if (offset == 0 || !out_) DFIN_TRY_VOID(Begin());
    DFIN_TRY_VOID(digest_->Add(bytes));
    return out_->Write(bytes);
  }
  // False when the checksum is another.
  Result<bool> Publish() {
    if (!out_) DFIN_TRY_VOID(Begin());  // an empty file
    DFIN_TRY(const std::string sum, digest_->Finish());
    if (sum != (file_.sha256.empty() ? file_.git_sha1 : file_.sha256)) return false;
    DFIN_TRY_VOID(out_->Publish());
    return true;
  }

 private:
  Status Begin() {
    out_.reset();
    digest_.reset();
    DFIN_TRY(AtomicFile out, AtomicFile::Create(path_));
    DFIN_TRY(Digest digest, file_.sha256.empty() ? Digest::GitSha1(file_.size) : Digest::Sha256());
    out_.emplace(std::move(out));
    digest_.emplace(std::move(digest));
    return {};
  }

  const HubFile& file_;
  const std::string& path_;
  std::optional<AtomicFile> out_;
  std::optional<Digest> digest_;
};

Status FetchTo(HubClient& hub, const HubFile& file, const std::string& path, CancelToken cancel) {
  for (int i = 0; i < kMostTries; ++i) {
    Arriving arriving(file, path);
    const RangeSink sink = [&](uint64_t offset, Bytes bytes) { return arriving.Add(offset, bytes); };
    bool whole = file.size < kLargeFile;
    if (!whole) {
      const Status fetched = hub.FetchRange(file, 0, file.size, sink, cancel);
      whole = !fetched && fetched.error().code() == ErrorCode::kUnsupported;
      if (!fetched && !whole) return fetched;
    }
    if (whole) DFIN_TRY_VOID(hub.FetchWhole(file, sink, cancel));
    DFIN_TRY(const bool right, arriving.Publish());
    if (right) return {};
  }
  return Fail(ErrorCode::kCorrupt, hub.FileUrl(file), ": expected checksum ",
              file.sha256.empty() ? file.git_sha1 : file.sha256, " as listed, got another ", kMostTries,
              " times: the hub or the connection damages data");
}

// Fetched, unless the folder has it.
Status BringSmallFile(HubClient& hub, const HubFile& file, const std::string& folder, CancelToken cancel) {
  const std::string path = Cat(folder, "/", file.path);
  if (!FileExists(path)) return FetchTo(hub, file, path, cancel);
  Status same = CheckFile(path, file, {}, cancel);
  if (same || same.error().code() != ErrorCode::kCorrupt) return same;
  return Fail(ErrorCode::kInvalidArgument, path, ": expected this file of ", hub.options().repo, " at commit ",
              hub.commit(), ", got another one: use another folder, or move it away");
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
  const std::string& repo = hub.options().repo;
  manifest.endpoint = hub.options().endpoint;
  manifest.repository = repo;
  manifest.revision = hub.options().revision;
  manifest.commit = listing.commit;
  DFIN_TRY(const std::set<std::string> names, ShardNames(folder));
  for (const std::string& name : names) {
    const auto it = std::find_if(listing.files.begin(), listing.files.end(),
                                 [&](const HubFile& file) { return file.path == name; });
    if (it == listing.files.end())
      return Fail(ErrorCode::kCorrupt, repo, ": expected ", name, " in the file list, as ", kIndexFileName,
                  " says, got none: the repository is not complete");
    if (IsOwnName(name) || IsHiddenName(name))
      return Fail(ErrorCode::kCorrupt, repo, ": expected no shard of the name ", name, ", which is deltafin's own or ",
                  "hidden, got one in ", kIndexFileName);
    manifest.files.push_back({it->path, it->size, it->sha256, it->git_sha1});
  }
  // What the folder could not be opened with later is refused before anything is written.
  return StreamManifest::FromText(manifest.ToText(), repo);
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

// That the server which the user names has the commit, with the shards that the folder is of.
Status UseEndpoint(HubClient& hub, StreamFolder& folder, CancelToken cancel) {
  const StreamManifest& manifest = folder.manifest();
  if (hub.options().endpoint == manifest.endpoint) return {};
  DFIN_TRY(const HubListing listing, hub.List(manifest.commit, cancel));
  for (const StreamFile& file : manifest.files) {
    const auto it =
        std::find_if(listing.files.begin(), listing.files.end(), [&](const HubFile& f) { return f.path == file.name; });
    if (it == listing.files.end() || it->size != file.bytes || it->sha256 != file.sha256 ||
        it->git_sha1 != file.git_sha1)
      return Fail(ErrorCode::kCorrupt, hub.options().endpoint, ": expected ", file.name, " of commit ", manifest.commit,
                  " with the size and checksum that it has on ", manifest.endpoint, ", got ",
                  it == listing.files.end() ? "no such file" : "others", ": this is another repository");
  }
  return folder.SetEndpoint(hub.options().endpoint);
}

Status BringSmallFiles(HubClient& hub, const std::string& folder, const StreamStartOptions& options) {
  if (FileExists(Cat(folder, "/", kSetupJournalName)))
    return Fail(ErrorCode::kInvalidArgument, folder,
                ": expected a new folder for --dense-only, got one that setup fetches, or has fetched, whole shards "
                "into: leave --dense-only out, or use another folder");
  DFIN_TRY(const HubListing listing, hub.List("", options.cancel));
  for (const HubFile& file : SmallFiles(listing, options)) {
    if (options.on_phase) options.on_phase("fetching " + file.path);
    DFIN_TRY_VOID(BringSmallFile(hub, file, folder, options.cancel));
  }
  DFIN_TRY(const StreamManifest manifest, MakeManifest(hub, listing, folder));
  return StreamFolder::Create(folder, manifest);
}

// The folder itself, or the one that it will be made in.
std::string ThatExists(const std::string& folder) {
  std::filesystem::path path = FullPath(folder);
  while (!FileExists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

uint64_t ExpertBytes(const ModelSpec& spec) {
  return static_cast<uint64_t>(spec.num_moe_layers * spec.num_experts) *
         static_cast<uint64_t>(ExpertGeometry(spec).record_bytes());
}

}  // namespace

Result<StartedStream> StartStream(HubClient& hub, const std::string& folder, const StreamStartOptions& options) {
  DFIN_TRY_VOID(MakeWritableFolder(folder));
  StartedStream started;
  if (const Status taken = started.lock.Take({folder}, FolderLocks::Kind::kWrites); !taken)
    return Fail(ErrorCode::kUnavailable, folder,
                ": expected to be alone with this folder, got another deltafin at work in it: wait for it to end, then "
                "give the command again");
  DFIN_TRY_VOID(RemoveUnpublished({}, folder, ""));
  if (!IsStreamedFolder(folder)) DFIN_TRY_VOID(BringSmallFiles(hub, folder, options));
  DFIN_TRY(const StreamManifest manifest, ReadStreamManifest(folder));
  DFIN_TRY_VOID(CheckSame(manifest, hub, folder, options.revision_given));
  DFIN_TRY(started.folder, StreamFolder::Open(folder, StreamFolder::Use::kFill));
  if (options.endpoint_given) DFIN_TRY_VOID(UseEndpoint(hub, *started.folder, options.cancel));
  return started;
}

Result<SetupReport> PlanStream(HubClient& hub, const std::string& folder, bool dense_only,
                               const StreamStartOptions& options) {
  DFIN_TRY_VOID(CheckFolderCanBe(folder));
  std::string commit;
  if (IsStreamedFolder(folder)) {
    DFIN_TRY(const StreamManifest manifest, ReadStreamManifest(folder));
    DFIN_TRY_VOID(CheckSame(manifest, hub, folder, options.revision_given));
    commit = manifest.commit;
  }
  DFIN_TRY(const HubListing listing, hub.List(commit, options.cancel));
  const auto source = MakeHubSource(hub);
  SetupReport report;
  report.source = source->Name();
  report.commit = listing.commit;
  report.files = SmallFiles(listing, options);
  const auto config =
      std::find_if(report.files.begin(), report.files.end(), [](const HubFile& f) { return f.path == "config.json"; });
  if (config == report.files.end())
    return Fail(ErrorCode::kNotFound, report.source, ": expected a model with config.json, got none");
  DFIN_TRY(const std::string text, FetchText(*source, *config, kMaxConfigBytes, options.cancel));
  Result<ModelSpec> spec = ModelSpec::FromConfigText(text, "config.json");
  if (!spec) return FailWith(std::move(spec), report.source);
  for (const HubFile& file : listing.files)
    if (IsShard(file) && file.path.find('/') == std::string::npos) report.files.push_back(file);
  uint64_t there = 0;
  for (const HubFile& file : report.files) {
    report.bytes_total += file.size;
    there += std::min(file.size, AllocatedBytes(ShardPath(folder, file.path)));
  }
  if (dense_only) report.bytes_total -= std::min(report.bytes_total, ExpertBytes(*spec));
  DFIN_TRY(const DeviceSpace device, SpaceOf(ThatExists(folder)));
  report.space.push_back({folder, report.bytes_total - std::min(report.bytes_total, there), device.free_bytes});
  DFIN_TRY_VOID(CheckNeededSpace(report.space));
  return report;
}

}  // namespace deltafin
