#include "setup/setup_run.h"

#include <algorithm>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/index_file.h"
#include "checkpoint/shard_file.h"
#include "setup/file_check.h"

namespace deltafin {
namespace {

constexpr int kMostDownloads = 3;  // of a file whose checksum is wrong
constexpr size_t kSmallWindow = 16;
constexpr int kTickMs = 200;

}  // namespace

void SetupRun::Note(const std::string& text) {
  if (notes_.insert(text).second && options_.on_note) options_.on_note(text);
}

void SetupRun::Tell(const std::string& phase, const std::string& name) {
  progress_.phase = phase;
  progress_.name = name;
  progress_.bytes_received = received_before_ + (fetching_ != nullptr ? fetching_->bytes_received() : 0);
  const int64_t done = done_before_ + static_cast<int64_t>(progress_.bytes_received);
  progress_.bytes_done = std::min(progress_.bytes_total, static_cast<uint64_t>(std::max<int64_t>(0, done)));
  if (progress_fn_) progress_fn_(progress_);
}

Status SetupRun::Begin() {
  DFIN_TRY_VOID(MakeWritableFolder(options_.to));
  if (!locked_) {
    DFIN_TRY_VOID(locks_.Take({options_.to}, FolderLocks::Kind::kWrites));
    DFIN_TRY(const auto now, SetupJournal::Read(options_.to));
    if (now)
      return Fail(ErrorCode::kUnavailable, options_.to,
                  ": expected to be alone here, got another setup that made this folder meanwhile: give the same "
                  "command again");
  }
  // Left by one that was killed while it wrote a small file.
  DFIN_TRY_VOID(RemoveUnpublished(options_.hook, options_.to, "deltafin-"));
  DFIN_TRY(journal_, SetupJournal::Open(options_.to, Header(), contents_, options_.hook));
  return {};
}

// Else the note that such a file was verified would soon speak of a partial one.
Status SetupRun::ForgetTakenAway() {
  for (SetupFile& file : files_) {
    if (!file.was_taken_away) continue;
    DFIN_TRY_VOID(journal_->Append({SetupEntry::Kind::kAgain, file.number, 0, 0, 0}));
    file.was_taken_away = false;
  }
  return {};
}

// Killed between the note in the journal and the renaming.
Status SetupRun::NameVerifiedParts() {
  for (SetupFile& file : files_) {
    if (file.state != SetupFile::State::kPartVerified) continue;
    DFIN_TRY(const auto part, PartFile::Open(file.path, file.file.size, options_.hook));
    DFIN_TRY_VOID(part->Publish());
    file.state = SetupFile::State::kThere;
  }
  return {};
}

// What lies there without a note that it was verified: copied by other means, or touched since.
Status SetupRun::CheckThere() {
  for (SetupFile& file : files_) {
    if (file.state != SetupFile::State::kUnchecked) continue;
    const std::string name = file.file.path;
    const auto tick = [&] { Tell("checking", name); };
    DFIN_TRY(const FileStamp stamp, StampFile(file.path));
    DFIN_TRY(const HubFile expected, source_.WithChecksum(file.file, tick, cancel_));
    if (Status right = CheckFile(file.path, expected, tick, cancel_); !right) {
      if (right.error().code() != ErrorCode::kCorrupt) return right;
      return Fail(
          ErrorCode::kCorrupt, right.error().message(),
          ": this is not the repository's file: setup overwrites nothing: remove it to have it fetched, or give "
          "another folder with --to");
    }
    DFIN_TRY_VOID(journal_->Append({SetupEntry::Kind::kVerified, file.number, 0, 0, stamp.modified_ns}));
    file.file = expected;
    file.state = SetupFile::State::kThere;
    done_before_ += static_cast<int64_t>(file.file.size);
    ++progress_.files_done;
  }
  return {};
}

Status SetupRun::WaitFor(Fetcher& fetcher, size_t i, const SetupFile& file) {
  for (;;) {
    if (cancel_.cancelled()) return Fail(ErrorCode::kCancelled, "setup: stopped");
    DFIN_TRY(const bool whole, fetcher.Wait(i, kTickMs));
    Tell("fetching", file.file.path);
    if (whole) return {};
  }
}

Status SetupRun::Publish(Fetcher& fetcher, size_t i, SetupFile& file) {
  PartFile& part = fetcher.part(i);
  DFIN_TRY_VOID(part.Sync());
  DFIN_TRY(const int64_t modified_ns, part.ModifiedNs());
  DFIN_TRY_VOID(journal_->Append({SetupEntry::Kind::kVerified, file.number, 0, 0, modified_ns}));
  DFIN_TRY_VOID(part.Publish());
  file.state = SetupFile::State::kThere;
  ++report_.files_fetched;
  ++progress_.files_done;
  return {};
}

Status SetupRun::FetchOne(Fetcher& fetcher, size_t i, SetupFile& file) {
  const auto tick = [&] { Tell("verifying", file.file.path); };
  for (int downloads = 1;; ++downloads) {
    DFIN_TRY_VOID(WaitFor(fetcher, i, file));
    DFIN_TRY(const HubFile expected, source_.WithChecksum(file.file, tick, cancel_));
    Status right = CheckFile(fetcher.part(i).part_path(), expected, tick, cancel_);
    if (right) {
      file.file = expected;
      return Publish(fetcher, i, file);
    }
    if (right.error().code() != ErrorCode::kCorrupt) return right;
    done_before_ -= static_cast<int64_t>(file.file.size);
    if (downloads == kMostDownloads) {
      DFIN_TRY_VOID(journal_->Append({SetupEntry::Kind::kAgain, file.number, 0, 0, 0}));
      DFIN_TRY_VOID(fetcher.part(i).Remove());
      return Fail(ErrorCode::kCorrupt, source_.Name(), ": ", right.error().message(), " after ", kMostDownloads,
                  " downloads: nothing was published under that name: the server, the line or this machine's memory "
                  "changes bytes; try again later or with another --mirror");
    }
    Note(Cat(right.error().message(), ": fetched again (", downloads + 1, " of ", kMostDownloads, ")"));
    DFIN_TRY_VOID(fetcher.Again(i));
  }
}

Status SetupRun::Fetch(bool shards) {
  std::vector<FetchFile> wanted;
  std::vector<size_t> which;
  for (size_t f = 0; f < files_.size(); ++f) {
    SetupFile& file = files_[f];
    if (file.is_shard != shards || file.there()) continue;
    wanted.push_back({file.file, file.number, file.path, file.present});
    which.push_back(f);
  }
  FetcherOptions options;
  options.connections = options_.connections;
  options.range_bytes = options_.range_bytes;
  // With a pack: one shard is fetched while the one before is packed, and no more.
  options.window = !shards ? kSmallWindow : moves() ? 2 : 3;
  options.hook = options_.hook;
  Fetcher fetcher(source_, *journal_, options, std::move(wanted));
  fetching_ = &fetcher;
  fetcher.Start();
  Status status;
  for (size_t i = 0; i < which.size() && status; ++i) {
    SetupFile& file = files_[which[i]];
    status = FetchOne(fetcher, i, file);
    if (status && shards && report_.of_folder) status = KeepList();
    if (status && moves() && with_experts_.contains(file.file.path)) status = PackNow();
    if (status) fetcher.Release(i);
  }
  fetching_ = nullptr;
  received_before_ += fetcher.bytes_received();
  return status;
}

// That the repository has every shard that the index names; notes which of them have experts.
Status SetupRun::CheckIndex() {
  if (!spec_) return {};
  const auto listed = [&](const std::string& name) {
    return std::ranges::any_of(files_, [&](const SetupFile& f) { return f.file.path == name; });
  };
  if (!listed(kIndexFileName) && !listed(kSingleFileName))
    return Fail(ErrorCode::kNotFound, source_.Name(), ": expected ", kIndexFileName, " or ", kSingleFileName,
                ", got neither");
  if (!listed(kIndexFileName)) {
    with_experts_.insert(kSingleFileName);
    return {};
  }
  TensorDirectory directory(*spec_);
  DFIN_TRY(const FolderIndex index, ReadFolderIndex(options_.to, directory));
  for (const IndexedShard& shard : index.shards) {
    if (!listed(shard.name))
      return Fail(ErrorCode::kCorrupt, source_.Name(), ": expected shard ", shard.name, " that ", kIndexFileName,
                  " names, got a file list without it");
    if (shard.text_tensors > shard.dense_tensors) with_experts_.insert(shard.name);
  }
  return {};
}

// Of everything that is there. The last one, when all is there, makes the second copies.
Status SetupRun::PackNow() {
  const bool all = std::ranges::all_of(files_, [](const SetupFile& f) { return f.there(); });
  PackOptions options = options_.pack;
  options.model = options_.to;
  options.move = moves();
  if (!all) options.replica_bytes = 0;
  options.on_note = [this](const std::string& note) { Note(note); };
  options.hook = options_.hook;
  options.locks = &locks_;
  const auto progress = [this](const PackProgress& p) { Tell(p.phase); };
  DFIN_TRY(report_.pack, Pack(options, progress, cancel_));
  return {};
}

// A last look: every tensor has its place.
Status SetupRun::OpenAll() const {
  if (!spec_) return {};
  const bool moved =
      std::ranges::any_of(files_, [](const SetupFile& f) { return f.state == SetupFile::State::kMoved; });
  CheckpointOptions options;
  options.folder = options_.to;
  options.index_cache_folder = options_.pack.state_folder;
  options.cancel = cancel_;
  options.experts = moved || moves() ? ExpertsWanted::kElsewhere : ExpertsWanted::kInShards;
  const Result<Checkpoint> opened = Checkpoint::Open(options);
  if (!opened) return Failure(Error(opened.error()));
  return moved || moves() ? OpenSet() : Status();
}

// The experts that the shards gave up are nowhere else.
Status SetupRun::OpenSet() const {
  DFIN_TRY(const std::vector<std::string> folders, FindExpertFolders(options_.to, options_.pack.state_folder));
  const auto advice = [&] {
    return Cat(options_.to,
               ": shards gave up their experts to an expert set, which must be there: mount its drives; if it ",
               "is lost, remove those shards to have them fetched again");
  };
  if (folders.empty()) return Fail(ErrorCode::kNotFound, advice(), " (no folders of it are noted)");
  const Result<ExpertSet> set = ExpertSet::Open(folders, *spec_);
  if (!set) return Fail(set.error().code(), advice(), ": ", set.error().message());
  return {};
}

Result<SetupReport> SetupRun::Run() {
  DFIN_TRY_VOID(CheckOptions());
  DFIN_TRY_VOID(Lock());
  DFIN_TRY_VOID(ReadJournal());
  DFIN_TRY_VOID(List());
  DFIN_TRY_VOID(ReadConfig());
  DFIN_TRY_VOID(CheckSpace());
  if (options_.dry_run) return std::move(report_);
  DFIN_TRY_VOID(Begin());
  DFIN_TRY_VOID(ForgetTakenAway());
  DFIN_TRY_VOID(NameVerifiedParts());
  DFIN_TRY_VOID(KeepList());
  DFIN_TRY_VOID(CheckThere());
  report_.files_there = progress_.files_done;
  for (const SetupFile& file : files_) report_.files_moved += file.state == SetupFile::State::kMoved ? 1 : 0;
  DFIN_TRY_VOID(Fetch(false));
  DFIN_TRY_VOID(CheckIndex());
  // What an interrupted call fetched and did not pack, before more is fetched; and a pack that it did not finish, which
  // may have emptied the shards already. With nothing to do it changes nothing.
  const bool may_have_begun =
      std::ranges::any_of(files_, [&](const SetupFile& f) { return f.there() && with_experts_.contains(f.file.path); });
  if (moves() && may_have_begun) DFIN_TRY_VOID(PackNow());
  DFIN_TRY_VOID(Fetch(true));
  if (packs()) DFIN_TRY_VOID(PackNow());
  DFIN_TRY_VOID(OpenAll());
  DFIN_TRY_VOID(KeepList());
  report_.bytes_received = received_before_;
  Tell("done");
  return std::move(report_);
}

Result<SetupReport> FetchModel(ModelSource& source, const SetupOptions& options, const SetupProgressFn& progress,
                               CancelToken cancel) {
  return SetupRun(source, options, progress, cancel).Run();
}

}  // namespace deltafin
