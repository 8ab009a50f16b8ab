// Rebalancer: what it finds: an unfinished rebalance to go on with, or a set for which a new plan is made.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "checkpoint/hex.h"
#include "pack/publish.h"
#include "pack/rebalancer.h"
#include "pack/target_folders.h"

namespace deltafin {

// True when a journal of the same rebalance was found, and plan_ is what it says.
Result<bool> Rebalancer::FindUnfinished(const std::vector<std::string>& to) {
  std::vector<std::string> folders = to;
  for (const std::string& folder : given_from_) folders.push_back(FullPath(folder));
  for (const std::string& folder : folders) {
    DFIN_TRY(std::optional<PackJournal::Contents> found, PackJournal::Read(folder));
    if (!found) continue;
    const std::string path = folder + "/" + kJournalName;
    DFIN_TRY(const Json header, ParseJson(found->header, path));
    if (header.value("work", "") != "rebalance")
      return Fail(ErrorCode::kInvalidArgument, path, ": an unfinished pack: finish it first, with the options of then");
    if (!header.contains("to") || header["to"] != Json(to))
      return Fail(ErrorCode::kInvalidArgument, path, ": an unfinished rebalance with other options: to was ",
                  header.contains("to") ? DumpJson(header["to"]) : "not known", ", is now ", DumpJson(Json(to)),
                  ": give the folders of then to finish it");
    DFIN_TRY(plan_.before, ExpertSetManifest::FromText(header.value("before", ""), path));
    DFIN_TRY(plan_.after, ExpertSetManifest::FromText(header.value("after", ""), path));
    plan_.from = header.value("from", std::vector<std::string>());
    plan_.to = to;
    if (plan_.from.size() != plan_.before.drives.size() || to.size() != plan_.after.drives.size() ||
        plan_.before.tables.size() != plan_.after.tables.size())
      return Fail(ErrorCode::kCorrupt, path, ": names other drives than its manifests");
    unfinished_ = std::move(found);
    return true;
  }
  return false;
}

// Pieces of the next generation without a journal: that of the rebalance that left them lies on a drive that is gone.
Status Rebalancer::CheckNoLeftovers(const std::vector<std::string>& from, const std::vector<std::string>& to) const {
  const uint64_t next = plan_.after.generation;
  std::vector<std::string> folders = to;
  folders.insert(folders.end(), from.begin(), from.end());
  for (const std::string& folder : folders)
    for (const std::string& name : ListFiles(folder, Cat(kPiecePrefix, next, "-")))
      return Fail(ErrorCode::kIo, folder, "/", name, ": an unfinished pack or rebalance left it: expected its ",
                  kJournalName, " in the first folder that was named with --to then, got none in the folders named now",
                  ": is that drive mounted? Nothing was changed; give the same command again when it is back, and keep "
                  "this file");
  return {};
}

Status Rebalancer::CheckTargets(const std::vector<std::string>& to, const std::string& why_missing) const {
  for (const std::string& folder : to) {
    const bool stays = std::find(plan_.from.begin(), plan_.from.end(), folder) != plan_.from.end();
    if (!stays && !ListFiles(folder, kManifestPrefix).empty())
      return Fail(ErrorCode::kCorrupt, folder, ": expected an empty folder or one of expert set ",
                  ToHex(plan_.before.set_id), ", generation ", plan_.before.generation, ", got one that is not (",
                  why_missing,
                  "): nothing was changed: `deltafin verify --repair` mends a damaged one; for a stale one ",
                  "give another folder");
    DFIN_TRY_VOID(CheckNothingInTheWay(
        {folder}, stays ? Cat(kPiecePrefix, plan_.after.generation, "-") : std::string(kPiecePrefix)));
  }
  return {};
}

Status Rebalancer::CheckSpaceFor(const std::vector<std::string>& to) const {
  std::vector<SpaceNeed> needs;
  for (const std::string& folder : to) needs.push_back({folder, 2 * plan_.before.index_bytes});
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica})
      for (const ExpertPieceFile& piece : NewPieces(plan_, t, kind)) {
        const ExpertTable& table = plan_.after.tables[t];
        needs[static_cast<size_t>(piece.cut.drive)].bytes +=
            piece.stride * (kind == CopyKind::kPrimary ? table.slots : table.replica_slots);
      }
  return CheckSpace(needs, "", 0);
}

Status Rebalancer::NewPlan(const std::vector<std::string>& to) {
  std::vector<std::string> from;
  for (const std::string& folder : given_from_) from.push_back(FullPath(folder));
  if (from.empty())
    return Fail(ErrorCode::kNotFound, options_.model, ": expected a note of where its expert set is, got none: name ",
                "its folders with --experts");
  // The same command after it is done: the set is at its new place already.
  for (const std::string& folder : to)
    if (std::find(from.begin(), from.end(), folder) == from.end() && !ListFiles(folder, kManifestPrefix).empty())
      from.push_back(folder);
  DFIN_TRY(const FoundSets found, FindSets(from));
  const SetCandidate set = NewestOf(found);
  std::vector<ExpertSetDrive> drives;
  for (size_t d = 0; d < to.size(); ++d)
    drives.push_back({to[d].substr(to[d].rfind('/') + 1), options_.targets[d].bytes_per_second});
  const bool all = std::all_of(drives.begin(), drives.end(), [](const auto& d) { return d.bytes_per_second > 0; });
  for (ExpertSetDrive& drive : drives)
    if (!all) drive.bytes_per_second = 0;
  plan_ = PlanRebalance(set, to, drives);
  nothing_to_do_ = ChangesNothing(plan_);
  if (nothing_to_do_) return {};
  for (const ExpertTable& table : plan_.before.tables)
    if (to.size() < 2 && table.replica_slots > 0) Note("second copies are given up: they need another drive");
  DFIN_TRY_VOID(CheckNoLeftovers(from, to));
  DFIN_TRY_VOID(CheckTargets(to, WhyMissing(found, set, from)));
  DFIN_TRY_VOID(CheckSpaceFor(to));
  plan_.after.index_bytes = IndexFileBytes(plan_.after);
  Json header;
  header["work"] = "rebalance";
  header["to"] = to;
  header["from"] = plan_.from;
  header["before"] = plan_.before.ToText();
  header["after"] = plan_.after.ToText();
  header_ = DumpJson(header);
  return {};
}

Status Rebalancer::Prepare() {
  DFIN_TRY(const std::vector<std::string> to, PrepareFolders(options_.targets));
  std::vector<std::string> folders = to;
  folders.insert(folders.end(), given_from_.begin(), given_from_.end());
  DFIN_TRY_VOID(locks_.Take({options_.model}, FolderLocks::Kind::kReads));
  DFIN_TRY_VOID(locks_.Take(folders, FolderLocks::Kind::kWrites));
  for (const std::string& note : SharedDevices(to)) Note(note);
  DFIN_TRY(const bool resumed, FindUnfinished(to));
  if (!resumed) DFIN_TRY_VOID(NewPlan(to));
  DFIN_TRY_VOID(locks_.Take(plan_.from, FolderLocks::Kind::kWrites));
  published_ = resumed && IsPublished(plan_.after, to);
  if (Result<PackSource> source = PackSource::Open(options_.model, "", options_.io, cancel_)) {
    if (!source->MayBe(plan_.before.model_id))
      return Fail(ErrorCode::kCorrupt, options_.model, ": expected model ", ToHex(plan_.before.model_id),
                  " that the expert set was packed from, got model ", ToHex(source->model_id),
                  ": nothing was changed: name the model of this set");
    source_ = std::move(*source);
  } else if (source.error().code() == ErrorCode::kCancelled) {
    return Failure(std::move(source.error()));
  }
  return {};
}

}  // namespace deltafin
