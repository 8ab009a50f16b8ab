// Rebalancer: one call of Rebalance: plan, copies what moves, publishes, frees what was given up. See pack.h.
//
// The journal's header holds both manifests, so an interrupted call goes on exactly as planned, whatever was measured
// since. Thread rule: one thread calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pack/packer.h"
#include "pack/rebalance_plan.h"

namespace deltafin {

class Rebalancer {
 public:
  Rebalancer(const PackOptions& options, const std::vector<std::string>& from, const PackProgressFn& progress,
             CancelToken cancel)
      : options_(options), given_from_(from), progress_fn_(progress), cancel_(cancel) {}
  Result<PackReport> Run();

 private:
  Status Prepare();
  Result<bool> FindUnfinished(const std::vector<std::string>& to);
  Status NewPlan(const std::vector<std::string>& to);
  Status CheckNoLeftovers(const std::vector<std::string>& from, const std::vector<std::string>& to) const;
  Status CheckTargets(const std::vector<std::string>& to, const std::string& why_missing) const;
  Status CheckSpaceFor(const std::vector<std::string>& to) const;
  void TellMissing();
  Status LoadRecords();
  Status CheckFilesThere() const;
  Status CheckMoved() const;
  Status CopyAll();
  Status CopyTable(size_t table, CopyKind kind);
  Status CopySlots(size_t table, CopyKind kind, uint32_t first_slot, const std::vector<ExpertPieceFile>& pieces);
  bool ChunksAreGood(uint32_t position, const std::vector<std::pair<uint64_t, uint64_t>>& chunks,
                     const std::byte* record) const;
  bool AddAnyParts(uint32_t position, uint64_t begin, uint64_t end, std::byte* buffer, std::span<ReadPart> out,
                   size_t* count) const;
  // Every chunk from wherever it is sound.
  Status Rescue(uint32_t position, const std::vector<std::pair<uint64_t, uint64_t>>& chunks, std::byte* record);
  Status RescueChunk(uint32_t position, uint64_t chunk, std::byte* record);
  // Why a copy cannot be read: which drives are not there.
  std::string MissingFor(const SetFiles::Range& range) const;
  Status Publish();
  Status FreeVacated();
  void Note(std::string text);
  void Tell(const std::string& phase);
  uint64_t RecordBytes(uint32_t position) const {
    return plan_.before.tables[index_.entries[position].table].record_bytes;
  }

  const PackOptions& options_;
  const std::vector<std::string>& given_from_;
  const PackProgressFn& progress_fn_;
  const CancelToken cancel_;
  FolderLocks locks_;
  RebalancePlan plan_;
  bool nothing_to_do_ = false, published_ = false;
  std::optional<PackJournal::Contents> unfinished_;
  std::string header_;
  ExpertSetIndex index_;  // of plan_.before
  std::vector<uint64_t> chunk_starts_;
  std::vector<std::array<uint32_t, 2>> slots_done_;              // [table][kind]
  std::vector<std::array<std::vector<uint32_t>, 2>> positions_;  // [table][kind][slot]
  std::optional<PackSource> source_;
  std::optional<SetFiles> set_;
  AlignedBuffer scratch_;
  std::unique_ptr<IoScheduler> io_;
  std::unique_ptr<PieceOutputs> outputs_;
  std::unique_ptr<DriveWriters> writers_;
  std::optional<PackJournal> journal_;
  std::unique_ptr<JournaledBatches> batches_;
  PackProgress progress_;
  PackReport report_;
};

}  // namespace deltafin
