#include "pack/rebalance_plan.h"

#include <algorithm>
#include <map>

#include "pack/set_state.h"

namespace deltafin {
namespace {

// New numbers of old drives; those that leave get numbers beyond the new ones.
std::vector<int32_t> Renumber(const std::vector<std::string>& from, const std::vector<std::string>& to) {
  std::vector<int32_t> numbers;
  for (size_t d = 0; d < from.size(); ++d) {
    const auto it = std::find(to.begin(), to.end(), from[d]);
    const bool stays = !from[d].empty() && it != to.end();
    numbers.push_back(static_cast<int32_t>(stays ? static_cast<size_t>(it - to.begin()) : to.size() + d));
  }
  return numbers;
}

std::vector<ExpertPieceFile> Renumbered(std::vector<ExpertPieceFile> pieces, const std::vector<int32_t>& numbers) {
  for (ExpertPieceFile& piece : pieces) piece.cut.drive = numbers[static_cast<size_t>(piece.cut.drive)];
  return pieces;
}

// Pieces that lie inside an old one of the same drive keep its file.
std::vector<ExpertPieceFile> PlaceInFiles(const std::vector<CutPiece>& cut, const std::vector<ExpertPieceFile>& old,
                                          const ExpertSetManifest& after, int whole, bool replica) {
  std::vector<ExpertPieceFile> files = SetState::NameFiles(cut, after.generation, whole, replica);
  for (ExpertPieceFile& file : files)
    for (const ExpertPieceFile& there : old) {
      const bool inside =
          there.cut.drive == file.cut.drive && there.cut.begin <= file.cut.begin && file.cut.end <= there.cut.end;
      if (!inside) continue;
      const CutPiece its_cut = file.cut;
      file = there;
      file.cut = its_cut;
      break;
    }
  return files;
}

std::vector<CutPiece> CutsOf(const std::vector<ExpertPieceFile>& pieces) {
  std::vector<CutPiece> cuts;
  for (const ExpertPieceFile& piece : pieces) cuts.push_back(piece.cut);
  return cuts;
}

std::string KeyOf(const std::string& folder, const std::string& file) { return folder + "/" + file; }

}  // namespace

RebalancePlan PlanRebalance(const SetCandidate& set, const std::vector<std::string>& to,
                            const std::vector<ExpertSetDrive>& drives) {
  RebalancePlan plan{set.manifest, set.manifest, set.folders, to};
  ExpertSetManifest& after = plan.after;
  ++after.generation;
  after.drives = drives;
  after.this_drive = 0;
  after.index_file = IndexFileName(after.generation);
  const std::vector<int32_t> numbers = Renumber(plan.from, to);
  const std::vector<double> shares = SharesOf(drives);
  for (ExpertTable& table : after.tables) {
    const std::vector<ExpertPieceFile> old = Renumbered(table.pieces, numbers);
    const std::vector<CutPiece> cut = RecutRecord(CutsOf(old), after.page, shares).pieces;
    table.pieces = PlaceInFiles(cut, old, after, table.whole, false);
    const std::vector<ExpertPieceFile> old_copies = Renumbered(table.replica_pieces, numbers);
    if (to.size() < 2) table.replica_slots = 0;  // a copy lies on another drive
    const std::vector<CutPiece> copies =
        table.replica_slots == 0 ? std::vector<CutPiece>() : CutReplica(cut, after.page, shares);
    table.replica_pieces = PlaceInFiles(copies, old_copies, after, table.whole, true);
  }
  return plan;
}

bool ChangesNothing(const RebalancePlan& plan) {
  if (plan.from != plan.to) return false;
  for (size_t t = 0; t < plan.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica})
      if (!NewPieces(plan, t, kind).empty()) return false;
  return true;
}

std::vector<ExpertPieceFile> NewPieces(const RebalancePlan& plan, size_t table, CopyKind kind) {
  const ExpertTable& t = plan.after.tables[table];
  const std::string prefix = Cat(kPiecePrefix, plan.after.generation, "-");
  std::vector<ExpertPieceFile> pieces;
  for (const ExpertPieceFile& piece : kind == CopyKind::kPrimary ? t.pieces : t.replica_pieces)
    if (piece.file.starts_with(prefix)) pieces.push_back(piece);
  return pieces;
}

std::vector<Vacated> VacatedRanges(const RebalancePlan& plan) {
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  std::map<std::string, Ranges> kept;
  const auto each = [](const ExpertSetManifest& m, auto&& visit) {
    for (const ExpertTable& table : m.tables) {
      for (const ExpertPieceFile& piece : table.pieces) visit(piece, table.slots);
      for (const ExpertPieceFile& piece : table.replica_pieces) visit(piece, table.replica_slots);
    }
  };
  const auto in_slot = [](const ExpertPieceFile& p) {
    return std::pair(p.cut.begin - p.file_begin, p.cut.end - p.file_begin);
  };
  each(plan.after, [&](const ExpertPieceFile& piece, uint32_t) {
    kept[KeyOf(plan.to[static_cast<size_t>(piece.cut.drive)], piece.file)].push_back(in_slot(piece));
  });
  std::map<std::string, Vacated> vacated;
  each(plan.before, [&](const ExpertPieceFile& piece, uint32_t slots) {
    const std::string& folder = plan.from[static_cast<size_t>(piece.cut.drive)];
    if (folder.empty()) return;
    const std::string path = KeyOf(folder, piece.file);
    Vacated& out = vacated[path];
    out.path = path;
    out.stride = piece.stride;
    out.slots = slots;
    auto it = kept.find(path);
    out.whole_file = it == kept.end();
    if (out.whole_file) return;
    std::sort(it->second.begin(), it->second.end());
    auto [begin, end] = in_slot(piece);
    for (const auto& [kept_begin, kept_end] : it->second) {
      if (kept_end <= begin || kept_begin >= end) continue;
      if (kept_begin > begin) out.ranges.emplace_back(begin, kept_begin);
      begin = kept_end;
    }
    if (begin < end) out.ranges.emplace_back(begin, end);
  });
  std::vector<Vacated> out;
  for (auto& [path, v] : vacated)
    if (v.whole_file || !v.ranges.empty()) out.push_back(std::move(v));
  return out;
}

}  // namespace deltafin
