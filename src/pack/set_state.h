// SetState: an expert set while it is being written: its tables, which record lies in which slot, all checksums.
//
// Unlike a published manifest it has a table for every size of record that may occur; Finish() leaves out empty ones.
// A value type. No I/O.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"
#include "pack/pack_source.h"

namespace deltafin {

struct SetState {
  ExpertSetManifest manifest;                 // of the generation to be published
  std::vector<ExpertSetEntry> entries;        // table: into manifest.tables
  std::vector<std::vector<uint64_t>> chunks;  // of each record

  // An empty set over drives of these rates (all 0: equal shares), in `folders`. `checksum_chunk` 0: chosen.
  static SetState New(const PackSource& source, bool compact, uint64_t checksum_chunk,
                      const std::vector<ExpertSetDrive>& drives, const std::vector<std::string>& folders);
  // The next generation of a published set.
  static SetState Extend(const ExpertSetManifest& manifest, const ExpertSetIndex& index);
  // What a journal's header keeps: manifest as ToText() gave it; the entries come from the published set, if any.
  static SetState Resume(const ExpertSetManifest& manifest, const ExpertSetManifest* published,
                         const ExpertSetIndex* index);

  // The manifest as text for the journal's header.
  std::string Text() const;

  size_t TableOf(int whole) const;
  // Takes the next slot of the record's table, or of its copies.
  void AddRecord(uint32_t position, const ScaleBases& bases, uint64_t hash, std::vector<uint64_t> chunk_hashes);
  void AddCopy(uint32_t position);
  bool has(uint32_t position) const { return entries[position].slot != kNoSlot; }
  const ExpertTable& table(uint32_t position) const { return manifest.tables[entries[position].table]; }

  // What is published.
  std::pair<ExpertSetManifest, ExpertSetIndex> Finish() const;

  // Files of tables that the published set, if any, does not have get the names of this generation.
  static std::vector<ExpertPieceFile> NameFiles(const std::vector<CutPiece>& cut, uint64_t generation, int whole,
                                                bool replica);
};

// Shares of drives: their rates if all are known, else equal ones.
std::vector<double> SharesOf(const std::vector<ExpertSetDrive>& drives);

}  // namespace deltafin
