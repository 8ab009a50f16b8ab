// Placement: on which drives the parts or copies of each expert lie in a simulation, and which of them a read uses.
//
// Striped: every record in one piece a drive, in proportion to their rates. Mirrored: a whole copy on every drive.
// Shards: the files as released, on the fastest drive. Weighted: copies of the most used experts, as many as fit on
// each drive. A record with several copies is read from the drive that would be through first, or, unbalanced, from one
// that does not depend on what the drives have to do. Immutable; a pure function of its inputs and the drives' queues.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "simulate/drive_bank.h"
#include "simulate/machine.h"

namespace deltafin::simulate {

enum class LayoutKind : uint8_t { kStriped, kMirrored, kShards, kWeighted, kHotOnFastest };

struct Layout {
  LayoutKind kind = LayoutKind::kStriped;
  // kWeighted: the share of all experts, the most used first, that each drive has; of one drive 1. kHotOnFastest: the
  // first number is the share that lies on the fastest drive alone; the others are spread over the other drives.
  std::vector<double> held = {};
  bool balanced = true;
  std::vector<double> fixed_shares = {};  // unbalanced: the part of all records each drive is asked for; empty: equal
};

Result<LayoutKind> ParseLayout(std::string_view text);
std::string_view ToString(LayoutKind kind);

class Placement {
 public:
  struct Piece {
    size_t drive = 0;
    double bytes = 0;
  };

  Placement(const Layout& layout, const Machine& machine);

  // Of a record that is `rank` (0 .. 1) in popularity; `key` names it.
  void Pieces(int64_t key, double rank, double bytes, bool ahead, const DriveBank& bank, std::vector<Piece>* out) const;

 private:
  bool Holds(size_t drive, int64_t key, double rank) const;
  size_t Unbalanced(int64_t key, double rank) const;

  Layout layout_;
  std::vector<double> rates_;  // what each drive can deliver when all are read together
  double sum_ = 0;
  size_t fastest_ = 0;
};

}  // namespace deltafin::simulate
