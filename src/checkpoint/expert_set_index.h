// ExpertSetIndex: where each record of an expert set lies, and the checksums of records and their chunks.
//
// Every folder of a set holds the same index file (little-endian, docs/FORMAT.md). Loading keeps the entries (24 bytes
// a record) in memory and, if asked, the checksums of chunks (8 bytes a chunk). Parsing is a pure function and is
// fuzzed. Checksums are XXH3 of the packed record, padding included; chunks lie on a grid of checksum_chunk bytes on
// the record, so moving pieces between drives changes none. Immutable after loading; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/compact_scales.h"
#include "checkpoint/expert_set_manifest.h"

namespace deltafin {

inline constexpr uint32_t kNoSlot = 0xffffffffu;

struct ExpertSetEntry {
  uint32_t slot = kNoSlot;          // in its table; kNoSlot: the record is not in the set
  uint32_t replica_slot = kNoSlot;  // in the table's replica files; kNoSlot: no second copy
  uint8_t table = 0;                // index into manifest.tables
  ScaleBases bases = kAllScalesWhole;
  uint64_t hash = 0;  // of the packed record
};

struct ExpertSetIndex {
  std::vector<ExpertSetEntry> entries;  // [moe layers * experts], layer by layer
  // Checksums of the chunks, record after record in the order of `entries` (absent ones have none); empty unless asked
  // for.
  std::vector<uint64_t> chunk_hashes;

  // Where the chunks of an entry start in chunk_hashes; one more at the end, their number.
  std::vector<uint64_t> ChunkStarts(const ExpertSetManifest& manifest) const;

  // With chunk_hashes of all records. The manifest's index_bytes and index_hash are the size and Hash64 of the result.
  std::vector<std::byte> ToBytes(const ExpertSetManifest& manifest) const;
  // `bytes` is the whole file. Every slot of every table must be taken exactly once, replica slots too. An absent
  // record has a default entry. kCorrupt.
  static Result<ExpertSetIndex> FromBytes(Bytes bytes, const ExpertSetManifest& manifest, bool with_chunks,
                                          const std::string& what);
};

inline uint64_t ChunksOf(uint64_t record_bytes, uint64_t chunk) { return (record_bytes + chunk - 1) / chunk; }
// Of all records in the tables.
uint64_t ChunkCount(const ExpertSetManifest& manifest);
// The size that the index file has: manifest.index_bytes.
uint64_t IndexFileBytes(const ExpertSetManifest& manifest);
// Where the file keeps the checksum of a chunk, counted as in chunk_hashes.
uint64_t ChunkHashOffset(const ExpertSetManifest& manifest, uint64_t chunk);
// Of one packed record; the last chunk may be shorter.
std::vector<uint64_t> HashChunks(Bytes record, uint64_t chunk);

}  // namespace deltafin
