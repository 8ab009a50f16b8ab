// SetVerifier: the part of verify that reads an expert set: manifests and indexes, every record, unused bytes.
//
// Records are read in the order of their slots, several at once, and hashed by a few threads; what does not pass goes
// to the doctor. Thread rule: one thread calls Run(), once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
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

  // False when nothing more can be checked.
  Result<bool> Open();
  Status MatchFolders();
  void CheckManifests();
  // Compares a whole small file with what it should be, and rewrites it with --repair.
  void CheckSmallFile(const std::string& path, Bytes expected, const char* what);
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
  SetCandidate found_;
  ExpertSetIndex index_;
  std::optional<SetFiles> set_;
  std::optional<PackSource> source_;
  std::unique_ptr<IoScheduler> io_;
  std::unique_ptr<SetDoctor> doctor_;
  std::unique_ptr<ThreadPool> pool_;
  uint64_t total_ = 0;
  VerifyReport report_;
};

}  // namespace deltafin
