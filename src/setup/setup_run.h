// SetupRun: one call of FetchModel, step by step. See setup.h for what it promises.
//
// Thread rule: one thread calls; the Fetcher's connections have threads of their own.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pack/folder_locks.h"
#include "setup/fetcher.h"
#include "setup/setup.h"
#include "setup/setup_files.h"
#include "setup/setup_journal.h"
#include "spec/model_spec.h"

namespace deltafin {

class SetupRun {
 public:
  SetupRun(ModelSource& source, const SetupOptions& options, const SetupProgressFn& progress, CancelToken cancel)
      : source_(source), options_(options), progress_fn_(progress), cancel_(cancel) {}
  Result<SetupReport> Run();

 private:
  // What is to be done (setup_prepare.cc).
  Status CheckOptions() const;
  Status CheckNotNested() const;
  Status Lock();
  Status ReadJournal();
  Status List();
  Status ReadConfig();
  Status CheckSpace();
  void TakeKnownChecksums();
  std::string Header() const;

  // Doing it (setup_run.cc).
  Status Begin();
  Status ForgetTakenAway();
  Status NameVerifiedParts();
  Status CheckThere();
  Status Fetch(bool shards);
  Status FetchOne(Fetcher& fetcher, size_t i, SetupFile& file);
  Status WaitFor(Fetcher& fetcher, size_t i, const SetupFile& file);
  Status Publish(Fetcher& fetcher, size_t i, SetupFile& file);
  Status CheckIndex();
  Status KeepList();
  Status PackNow();
  Status OpenAll() const;
  Status OpenSet() const;

  bool packs() const { return !options_.pack.targets.empty(); }
  bool moves() const { return packs() && !options_.keep_shards; }
  void Note(const std::string& text);
  void Tell(const std::string& phase, const std::string& name = "");

  ModelSource& source_;
  const SetupOptions& options_;
  const SetupProgressFn& progress_fn_;
  const CancelToken cancel_;
  FolderLocks locks_;
  bool locked_ = false;  // before the journal was read
  std::optional<SetupJournal::Contents> contents_;
  std::unique_ptr<SetupJournal> journal_;
  HubListing listing_;
  std::vector<SetupFile> files_;
  std::optional<ModelSpec> spec_;
  std::set<std::string> with_experts_;  // names of shards
  std::set<std::string> notes_;
  const Fetcher* fetching_ = nullptr;
  uint64_t received_before_ = 0;  // by fetchers that are gone
  int64_t done_before_ = 0;       // bytes that no fetcher of this call brings
  SetupProgress progress_;
  SetupReport report_;
};

}  // namespace deltafin
