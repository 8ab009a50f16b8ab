// PieceOutputs: the files of a set that is being written, opened when first needed.
//
// Gives each piece of a record to the writer of its drive. Thread rule: one thread calls; the jobs run on the writers'
// threads, each file on one. Outlives the writers' jobs.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/expert_set_manifest.h"
#include "pack/drive_writers.h"
#include "pack/output_file.h"
#include "pack/set_files.h"

namespace deltafin {

class PieceOutputs {
 public:
  PieceOutputs(std::vector<std::string> folders, DiskHook hook)
      : folders_(std::move(folders)), hook_(std::move(hook)) {}

  // Opens the files of pieces that are not open yet. `slots`: how many there will be, to reserve room; 0: not known.
  Status Open(const std::vector<ExpertPieceFile>& pieces, uint64_t slots);
  // Gives the pieces whose files are open; `record` stays untouched until the group has ended.
  void Write(DriveWriters& writers, DriveWriters::Group& group, const std::vector<ExpertPieceFile>& pieces,
             uint32_t slot, const std::byte* record);
  // One job a drive: flushes its files that were written since.
  void Sync(DriveWriters& writers, DriveWriters::Group& group);
  // Open files of `pieces` get the size that `slots` need; flushed.
  Status SetSizes(const std::vector<ExpertPieceFile>& pieces, uint32_t slots);

  // Files that are written through the page cache; for a note.
  std::vector<std::string> CachedFiles() const;

 private:
  struct Output {
    std::unique_ptr<OutputFile> file;
    uint64_t limit = 0;  // bytes that it will have
    bool dirty = false;
  };
  Output* Find(const ExpertPieceFile& piece);

  std::vector<std::string> folders_;
  DiskHook hook_;
  std::vector<std::map<std::string, Output>> drives_{folders_.size()};
};

}  // namespace deltafin
