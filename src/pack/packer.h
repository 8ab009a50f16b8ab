// Packer: one call of Pack, from sources to a published set. See pack.h for what it promises.
//
// Reading, packing and writing overlap: records are read ahead in the order of their bytes, packed by a few threads,
// and written by one thread a drive; batches are flushed and then noted in the journal. Thread rule: one thread calls.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "pack/drive_writers.h"
#include "pack/folder_locks.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_setup.h"
#include "pack/pack_source.h"
#include "pack/piece_outputs.h"
#include "pack/record_stream.h"
#include "pack/shard_stream.h"

namespace deltafin {

// Buffers of packed records on their way to the drives, used in turn. The destructor waits for the writers.
class RecordBuffers {
 public:
  struct Buffer {
    std::byte* data = nullptr;
    DriveWriters::Group written;
  };
  static Result<std::unique_ptr<RecordBuffers>> Create(DriveWriters& writers, size_t count, uint64_t bytes);
  ~RecordBuffers();
  // Waits until the next one is written.
  Buffer& Next();

 private:
  explicit RecordBuffers(DriveWriters& writers) : writers_(writers) {}
  DriveWriters& writers_;
  AlignedBuffer memory_;
  std::deque<Buffer> buffers_;
  size_t next_ = 0;
};

// Work that is written, then flushed, then noted in a journal, a batch at a time.
class JournaledBatches {
 public:
  JournaledBatches(DriveWriters& writers, PieceOutputs& outputs, PackJournal& journal, uint64_t batch_bytes)
      : writers_(writers), outputs_(outputs), journal_(journal), batch_bytes_(batch_bytes) {}
  ~JournaledBatches();

  // After the entry's data was given to the writers.
  Status Add(JournalEntry entry, uint64_t bytes);
  // Everything added so far is in the journal on return.
  Status Flush();

 private:
  struct Batch {
    std::vector<JournalEntry> entries;
    DriveWriters::Group synced;
  };
  void Close();
  Status NoteFirst();

  DriveWriters& writers_;
  PieceOutputs& outputs_;
  PackJournal& journal_;
  const uint64_t batch_bytes_;
  std::vector<JournalEntry> entries_;
  uint64_t bytes_ = 0;
  std::deque<Batch> batches_;
};

class Packer {
 public:
  Packer(const PackOptions& options, const PackProgressFn& progress, CancelToken cancel)
      : options_(options), progress_fn_(progress), cancel_(cancel) {}
  Result<PackReport> Run();

 private:
  struct Packed {  // what a thread finds out about a record
    Status status;
    ScaleBases bases = kAllScalesWhole;
    uint64_t bytes = 0, hash = 0;
    std::vector<uint64_t> chunk_hashes;
  };

  Status Prepare();
  Status FinishPublished();
  Status CheckSpaceLeft() const;
  Status OpenOutputs();
  Status PackAll();
  Status PackShards(size_t begin, size_t end);
  Status PackList(const ExpertList& list, const ShardFiles& files);
  Packed PackOne(const SourceExpert& expert, const DirectFile& file, const std::byte* in, std::byte* out) const;
  Status Take(const SourceExpert& expert, Packed packed, RecordBuffers::Buffer& buffer);
  // That the set holds what the shards hold now.
  Status CompareList(const ExpertList& list, const ShardFiles& files);
  Status MoveShard(int32_t shard);
  Status ReadBack(const ExpertList& experts);
  std::vector<uint32_t> ChooseCopies() const;
  Status PackCopies(const std::vector<uint32_t>& positions);
  Status Publish();
  void Note(std::string text);
  void Tell(const std::string& phase);
  void FillReport();
  // As many records as a few hundred megabytes hold, at least `least`.
  static size_t Window(uint64_t record_bytes, size_t least);

  const PackOptions& options_;
  const PackProgressFn& progress_fn_;
  const CancelToken cancel_;
  FolderLocks own_locks_;
  PackSource source_;
  PackSetup setup_;
  uint64_t largest_record_ = 0;
  std::vector<uint64_t> usage_;
  bool work_to_publish_ = false;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<IoScheduler> io_;
  std::unique_ptr<PieceOutputs> outputs_;
  std::unique_ptr<DriveWriters> writers_;
  std::optional<PackJournal> journal_;
  std::unique_ptr<JournaledBatches> batches_;
  PackProgress progress_;
  PackReport report_;
};

}  // namespace deltafin
