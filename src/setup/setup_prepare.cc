// SetupRun: what there is, what is to come, and whether there is room for it.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/hex.h"
#include "checkpoint/shard_file.h"
#include "pack/target_folders.h"
#include "setup/setup_run.h"
#include "setup/setup_space.h"

namespace deltafin {

Status SetupRun::CheckOptions() const {
  if (options_.connections < 1 || options_.connections > 64)
    return Fail(ErrorCode::kInvalidArgument, "connections: expected 1 to 64, got ", options_.connections);
  constexpr uint64_t kLeast = 64 * 1024, kMost = uint64_t{1} << 30;
  if (options_.range_bytes < kLeast || options_.range_bytes > kMost)
    return Fail(ErrorCode::kInvalidArgument, "range: expected ", kLeast, " to ", kMost, " bytes, got ",
                options_.range_bytes);
  if (packs() && options_.any_model)
    return Fail(ErrorCode::kInvalidArgument, "only the experts of a Kimi K3 model can be packed");
  std::error_code ignored;
  if (std::filesystem::is_symlink(options_.to, ignored) && !std::filesystem::exists(options_.to, ignored))
    return Fail(ErrorCode::kInvalidArgument, options_.to,
                ": expected a folder, got a link that leads nowhere: make the folder that it names, or remove it");
  DFIN_TRY_VOID(CheckFolderCanBe(options_.to));
  if (packs()) DFIN_TRY_VOID(CheckTargets(options_.pack.targets));
  return CheckNotNested();
}

// A copy into its own source would be part of the source at the next call.
Status SetupRun::CheckNotNested() const {
  const Json identity = source_.Identity();
  if (!identity.contains("folder")) return {};
  const std::string from = identity["folder"].get<std::string>() + "/", to = FullPath(options_.to) + "/";
  if (!from.starts_with(to) && !to.starts_with(from)) return {};
  return Fail(ErrorCode::kInvalidArgument, options_.to, ": expected a folder that is not in ", source_.Name(),
              ", and does not hold it, got one of these: give another folder with --to");
}

// Before anything in the folder is read, until the end. One that is not there yet is locked when it is made.
Status SetupRun::Lock() {
  if (options_.dry_run) return {};
  locked_ = FileExists(options_.to);
  return locks_.Take({options_.to}, FolderLocks::Kind::kWrites);
}

Status SetupRun::ReadJournal() {
  DFIN_TRY(contents_, SetupJournal::Read(options_.to));
  if (!contents_) return {};
  const std::string path = options_.to + "/" + kSetupJournalName;
  DFIN_TRY(const Json header, ParseJson(contents_->header, path));
  const Json identity = source_.Identity();
  if (!header.is_object() || !header.contains("source") || header["source"] != identity)
    return Fail(ErrorCode::kInvalidArgument, path, ": this folder holds a download of ",
                header.is_object() && header.contains("source") ? DumpJson(header["source"]) : "something else",
                ", expected one of ", DumpJson(identity),
                ": give another folder with --to, or remove the journal to begin anew here");
  return {};
}

std::string SetupRun::Header() const {
  Json header;
  header["source"] = source_.Identity();
  header["commit"] = listing_.commit;
  header["files"] = ToHex(ListingHash(listing_));
  return DumpJson(header);
}

Status SetupRun::List() {
  std::string commit;
  if (contents_) {
    DFIN_TRY(const Json header, ParseJson(contents_->header, kSetupJournalName));
    commit = header.contains("commit") && header["commit"].is_string() ? header["commit"].get<std::string>() : "";
  }
  Tell("reading the file list");
  DFIN_TRY(listing_, source_.List(commit, cancel_));
  if (contents_) {
    if (const std::string changed = source_.ChangedSince(commit, cancel_); !changed.empty()) Note(changed);
    if (Header() != contents_->header)
      return Fail(ErrorCode::kCorrupt, source_.Name(), ": expected the file list of commit ", commit,
                  " as it was when the download began, got another: remove ", options_.to, "/", kSetupJournalName,
                  " to begin anew; what is there and right is kept");
  }
  std::vector<std::string> left_out;
  files_ = ChooseFiles(listing_, options_.to, left_out);
  for (const std::string& name : left_out) Note(name + ": left out: files of that name are deltafin's own");
  if (files_.empty()) return Fail(ErrorCode::kNotFound, source_.Name(), ": has no files to fetch");
  DFIN_TRY_VOID(FindStates(contents_ ? contents_->entries : std::vector<SetupEntry>(), files_));
  TakeKnownChecksums();
  for (SetupFile& file : files_) {
    if (file.state != SetupFile::State::kThere) continue;
    if (options_.verify_again)
      file.state = SetupFile::State::kUnchecked;
    else
      ++report_.files_unread;
  }
  progress_.files_total = files_.size();
  for (const SetupFile& file : files_) {
    progress_.bytes_total += file.file.size;
    if (file.there() || file.state == SetupFile::State::kPartVerified) {
      done_before_ += static_cast<int64_t>(file.file.size);
      ++progress_.files_done;
    }
    for (const HttpRange& range : file.present) done_before_ += static_cast<int64_t>(range.length);
  }
  report_.source = source_.Name();
  report_.of_folder = source_.Identity().contains("folder");
  if (!report_.of_folder) report_.commit = listing_.commit;
  report_.bytes_total = progress_.bytes_total;
  for (const SetupFile& file : files_) report_.files.push_back(file.file);
  return {};
}

Status SetupRun::ReadConfig() {
  if (options_.any_model) return {};
  const auto config = std::ranges::find_if(files_, [](const SetupFile& f) { return f.file.path == "config.json"; });
  if (config == files_.end())
    return Fail(ErrorCode::kNotFound, source_.Name(), ": expected a model with config.json, got none");
  DFIN_TRY(const std::string text, FetchText(source_, config->file, kMaxConfigBytes, cancel_));
  Result<ModelSpec> spec = ModelSpec::FromConfigText(text, "config.json");
  if (!spec)
    return Fail(spec.error().code(), source_.Name(), ": ", spec.error().message(),
                " (--any-model fetches a repository that is not a Kimi K3 model, such as a drafting model)");
  spec_ = std::move(*spec);
  return {};
}

Status SetupRun::CheckSpace() {
  DFIN_TRY(report_.space, NeededSpace(options_, files_, packs() && spec_ ? &*spec_ : nullptr));
  return CheckNeededSpace(report_.space);
}

}  // namespace deltafin
