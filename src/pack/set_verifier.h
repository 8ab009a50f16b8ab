// SetVerifier: the part of verify that reads an expert set: manifests and indexes, every record, unused bytes.
//
// A drive that is not there is told once, and the rest of the set is checked as far as checksums of chunks go.
// Records are read in the order of their slots, several at once, and hashed by a few threads; what does not pass goes
// to the doctor. Thread rule: one thread calls Run(), once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "pack/folder_locks.h"
#include "pack/pack_source.h"
#include "pack/set_doctor.h"
#include "pack/set_files.h"
#include "pack/verify.h"

namespace deltafin {

class SetVerifier {
 public:
  SetVerifier(const VerifyOptions& options, const BadRecordFn& on_bad, const VerifyProgressFn& progress,
              CancelToken cancel)
      : options_(options), on_bad_(on_bad), progress_(progress), cancel_(cancel) {}
  Result<VerifyReport> Run();

 private:
  struct FileUse {  // of one file: bytes of each slot that pieces use, ascending
    size_t table = 0;
    CopyKind kind = CopyKind::kPrimary;
    std::string path;
    uint64_t stride = 0;
    std::vector<std::pair<uint64_t, uint64_t>> used;
  };

  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;  // [begin, end) of chunks

  // False when nothing more can be checked.
  Result<bool> Open();
  Status CheckOneSet(const FoundSets& found) const;
  bool IsDrive(const std::string& folder, size_t drive) const;
  void MatchFolders();
  std::string ProbableFolder(const FoundSets& found, size_t drive) const;
  bool IsUnreadable(uint32_t position) const;
  void TellMissing(const FoundSets& found);
  bool HasJournal() const;
  void TellLost();
  void CheckManifests();
  // Compares a whole small file with what it should be, and rewrites it with --repair.
  void CheckSmallFile(const std::string& path, Bytes expected, const char* what);
  Ranges ChunksThere(size_t table, CopyKind kind) const;
  bool IsGood(uint32_t position, const Ranges& chunks, const std::byte* record) const;
  Status CheckRecords(CopyKind kind);
  Status CheckUnused();
  Status CheckUnusedOf(const FileUse& use);
  Status CheckZero(const FileUse& use, const DirectFile& file, uint64_t begin, uint64_t end);
  std::vector<FileUse> Files() const;
  void Bad(const BadRecord& bad);
  ExpertKey KeyOfSlot(const FileUse& use, uint64_t slot) const;

  const VerifyOptions& options_;
  const BadRecordFn& on_bad_;
  const VerifyProgressFn& progress_;
  const CancelToken cancel_;
  FolderLocks locks_;
  SetCandidate found_;  // folders that are missing are ""
  bool some_missing_ = false, experts_lost_ = false;
  ExpertSetIndex index_;
  std::vector<uint64_t> chunk_starts_;
  std::optional<SetFiles> set_;
  std::optional<PackSource> source_;
  std::unique_ptr<IoScheduler> io_;
  std::unique_ptr<SetDoctor> doctor_;
  std::unique_ptr<ThreadPool> pool_;
  uint64_t total_ = 0;
  VerifyReport report_;
};

}  // namespace deltafin
