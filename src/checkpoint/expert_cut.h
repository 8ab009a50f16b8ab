// expert_cut: how the bytes of one expert record are shared out over drives.
//
// A record is cut at page borders into contiguous pieces, in proportion to the drives' measured speed, so that all
// drives finish a record at the same time. Pure functions: no I/O, no state. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deltafin {

// A record has at most this many pieces, copies' borders counted: as many parts as one read may have.
inline constexpr size_t kMaxCutPieces = 64;

// Bytes [begin, end) of every record of a table lie on `drive`.
struct CutPiece {
  int32_t drive = 0;
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
  bool operator==(const CutPiece&) const = default;
};

// One piece a drive, in the order of the drives, covering [0, record_bytes) exactly once; sizes by largest remainder in
// whole pages (ties to the lower drive). Drives whose share rounds to nothing get no piece, nor does one whose rate is
// not a positive number. record_bytes is a multiple of page; at least one rate is positive.
std::vector<CutPiece> CutRecord(uint64_t record_bytes, uint64_t page, std::span<const double> rates);

// A second copy: every byte that `pieces` puts on a drive lies on another one, shared out over all others in proportion
// to their rates, so that any one drive can be missing and the load of a slow one is taken by all. With many drives
// each piece goes to the next few drives only (kMaxCutPieces). Empty with one drive.
std::vector<CutPiece> CutReplica(std::span<const CutPiece> pieces, uint64_t page, std::span<const double> rates);

// The cut for changed drives that moves the fewest bytes: every drive that shrinks gives up the end of what it has, and
// drives that grow take what was given up, in order. `pieces` may name drives beyond rates.size() or with rate 0: those
// leave and give up all. A drive may end up with several pieces, which are not joined where they touch: every piece of
// the result is either what is left of an old one (same drive, same begin) or wholly new to its drive. Sizes are those
// of CutRecord. Where pieces would become more than kMaxCutPieces it is CutRecord's cut.
struct Recut {
  std::vector<CutPiece> pieces;  // ascending by begin
  uint64_t moved_bytes = 0;      // of one record: bytes that lie on another drive than before
};
Recut RecutRecord(std::span<const CutPiece> pieces, uint64_t page, std::span<const double> rates);

}  // namespace deltafin
