// ExpertSetManifest: what an expert set is: which drives it spans, how records are cut, in which files the pieces lie.
//
// Every folder of a set holds the same manifest but for `this_drive`. Text form (JSON, with its own checksum) in
// docs/FORMAT.md. A value type; parsing is a pure function and is fuzzed. Errors: kCorrupt (torn, contradicts itself),
// kUnsupported (a newer version).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/expert_cut.h"

namespace deltafin {

// One file of one drive: piece [cut.begin, cut.end) of every record of a table. The piece of slot k lies at byte
// k * stride + (cut.begin - file_begin). Bytes of the file outside of all pieces are zero.
struct ExpertPieceFile {
  CutPiece cut;
  std::string file;         // name inside the drive's folder
  uint64_t file_begin = 0;  // first byte of the record that the file has room for (<= cut.begin)
  uint64_t stride = 0;      // bytes of a slot in the file

  uint64_t Offset(uint64_t slot) const { return slot * stride + (cut.begin - file_begin); }
};

// Records of one size: those with `whole` matrices that keep their scale bytes whole (compact_scales.h). A set without
// compact scales has one table, whole = 3.
struct ExpertTable {
  int32_t whole = 3;
  uint64_t record_bytes = 0;  // padding included, a multiple of the page
  uint32_t slots = 0;         // records in the table
  std::vector<ExpertPieceFile> pieces;
  uint32_t replica_slots = 0;  // records that have a second copy
  std::vector<ExpertPieceFile> replica_pieces;
};

struct ExpertSetDrive {
  std::string name;             // last part of the folder's path when it was packed; for people
  double bytes_per_second = 0;  // that decided its share; 0 = an equal share
};

inline constexpr uint64_t kMaxManifestBytes = uint64_t{4} << 20;

struct ExpertSetManifest {
  uint64_t set_id = 0;      // names the set; the same for all its generations
  uint64_t generation = 1;  // grows when the set is rebalanced or extended
  uint64_t model_id = 0;    // ExpertModelId() of the checkpoint it was packed from
  // Shape: an expert set of another model is refused before any weight is read.
  int64_t hidden = 0, intermediate = 0, first_moe_layer = 0, moe_layers = 0, experts = 0;
  uint64_t page = 4096;
  uint64_t checksum_chunk = 0;  // grid, on the record, of the checksums of chunks
  bool compact = false;
  std::vector<ExpertSetDrive> drives;
  int32_t this_drive = 0;
  int64_t records = 0;  // present in the set; moe_layers * experts when it is complete
  std::vector<ExpertTable> tables;
  std::string index_file;  // expert_set_index.h
  uint64_t index_bytes = 0, index_hash = 0;

  std::string ToText() const;
  // Checks everything that does not need the files: pieces (ascending by begin) cover every record exactly once, copies
  // lie on other drives, files do not overlap, names have no path separators, sizes fit the shape and cannot overflow.
  static Result<ExpertSetManifest> FromText(std::string_view text, const std::string& what);
};

// "deltafin-experts-g<generation>.json": the manifest's name in a drive folder.
std::string ManifestFileName(uint64_t generation);

}  // namespace deltafin
