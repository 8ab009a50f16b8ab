#include "pack/pack_setup.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/hex.h"
#include "pack/publish.h"
#include "pack/set_files.h"
#include "pack/target_folders.h"

namespace deltafin {
namespace {

std::string LastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Json Identity(const PackOptions& options, const PackSource& source, const std::vector<std::string>& folders) {
  Json identity;
  identity["work"] = "pack";
  identity["model"] = ToHex(source.fingerprint);
  identity["to"] = folders;
  identity["compact_scales"] = options.compact;
  identity["replicas"] = options.replica_bytes;
  return identity;
}

// Which options of an unfinished pack differ from these.
std::string Differences(const Json& then, const Json& now) {
  std::string text;
  for (const auto& [key, value] : now.items())
    if (!then.contains(key) || then[key] != value)
      text += Cat(text.empty() ? "" : "; ", key, " was ", then.contains(key) ? DumpJson(then[key]) : "not known",
                  ", is now ", DumpJson(value));
  return text;
}

struct UnfinishedPack {
  PackJournal::Contents contents;
  ExpertSetManifest manifest;
};

// A set that is extended has its own order of folders, whatever order they are named in.
void TakeOrderOfSet(const Json& header, std::vector<std::string>& folders, Json& identity) {
  if (header.value("generation", uint64_t{0}) < 2 || !header.contains("to")) return;
  auto then = header["to"].get<std::vector<std::string>>();
  std::vector<std::string> a = then, b = folders;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a == b) identity["to"] = folders = std::move(then);
}

// Whether an unfinished set may be the only place of some experts.
bool MayHoldOnlyCopies(const PackJournal::Contents& contents, const Json& header, const PackSource& source) {
  if (header.value("work", "") != "pack") return true;
  const Result<ExpertSetManifest> manifest = ExpertSetManifest::FromText(header.value("manifest", ""), "journal");
  return !manifest ||
         std::ranges::any_of(contents.entries, [](const auto& e) { return e.kind == JournalKind::kEmptied; }) ||
         std::ranges::any_of(source.moved, [&](const auto& shard) { return shard.set == ToHex(manifest->set_id); });
}

Failure OtherOptions(const PackJournal::Contents& contents, const Json& header, const Json& identity,
                     const std::string& path, const PackSource& source) {
  const bool other_model = header.contains("model") && header["model"] != identity["model"];
  const std::string differs = Differences(header, identity);
  return Fail(
      other_model ? ErrorCode::kCorrupt : ErrorCode::kInvalidArgument, path,
      ": unfinished work with other options: ", differs.empty() ? "this was not the first folder of then" : differs,
      ": give the options of then to finish it",
      MayHoldOnlyCopies(contents, header, source)
          ? std::string("; do not remove the file: experts may be in this unfinished set only")
          : Cat(", or, to start over, remove this file and the ", kPiecePrefix, header.value("generation", uint64_t{0}),
                "-* files in all its folders"));
}

// The journal in one of the folders, if there is one; refused when it is of other work.
Result<std::optional<UnfinishedPack>> FindUnfinished(std::vector<std::string>& folders, Json identity,
                                                     const PackSource& source) {
  const std::vector<std::string> given = folders;
  for (const std::string& folder : given) {
    DFIN_TRY(std::optional<PackJournal::Contents> found, PackJournal::Read(folder));
    if (!found) continue;
    const std::string path = folder + "/" + kJournalName;
    DFIN_TRY(const Json header, ParseJson(found->header, path));
    TakeOrderOfSet(header, folders, identity);
    if (!Differences(header, identity).empty() || folder != folders[0])
      return OtherOptions(*found, header, identity, path, source);
    DFIN_TRY(ExpertSetManifest manifest, ExpertSetManifest::FromText(header.value("manifest", ""), path));
    return std::optional(UnfinishedPack{std::move(*found), std::move(manifest)});
  }
  return std::optional<UnfinishedPack>();
}

// A set in the target folders that is to be extended.
Result<std::optional<SetCandidate>> FindPublished(const std::vector<std::string>& folders, const PackOptions& options,
                                                  const PackSource& source) {
  const bool any = std::any_of(folders.begin(), folders.end(),
                               [](const std::string& f) { return !ListFiles(f, kManifestPrefix).empty(); });
  if (!any) return std::optional<SetCandidate>();
  DFIN_TRY(const FoundSets all, FindSets(folders));
  SetCandidate found = NewestOf(all);
  const ExpertSetManifest& m = found.manifest;
  if (!source.MayBe(m.model_id))
    return Fail(ErrorCode::kCorrupt, folders[0], ": expected no expert set or one of model ", ToHex(source.model_id),
                ", got expert set ", ToHex(m.set_id), " of model ", ToHex(m.model_id), ": give empty folders");
  const auto refuse = [&](const auto&... parts) {
    return Fail(ErrorCode::kInvalidArgument, folders[0], ": the folders hold an expert set ", parts...);
  };
  if (found.folders.size() != folders.size())
    return refuse(
        "over ", m.drives.size(), " drives, and ", folders.size(),
        " folders are given: name exactly its folders to extend it, or use --rebalance to spread it over others");
  if (!IsComplete(found)) {
    const auto drive = static_cast<size_t>(std::ranges::find(found.folders, "") - found.folders.begin());
    return Fail(all.problems.empty() || all.damaged ? ErrorCode::kCorrupt : ErrorCode::kIo, NameOfDrive(m, drive),
                ": expected its folder among those given, got none of them (", WhyMissing(all, found, folders),
                "): nothing was changed: mount the drive, mend a damaged folder with `deltafin verify --repair`, or "
                "use --rebalance to spread the set over other folders");
  }
  uint64_t copies = 0;
  for (const ExpertTable& table : m.tables) copies += table.replica_slots * table.record_bytes;
  if (options.replica_bytes > 0 && options.replica_bytes < copies)
    return Fail(ErrorCode::kInvalidArgument, "--replicas: expected at least the ", copies, " bytes (",
                FormatBytes(copies), ") of second copies that expert set ", ToHex(m.set_id), " has, got ",
                options.replica_bytes,
                ": pack takes no copies away: give more, or leave the option out to keep what there is");
  if (m.compact != options.compact)
    return refuse(m.compact ? "with compact scales: add --compact-scales to extend it"
                            : "without compact scales: leave --compact-scales out to extend it");
  return std::optional(std::move(found));
}

Status ApplyJournal(const PackJournal::Contents& contents, const std::string& path, PackSetup& setup) {
  const auto wrong = [&](const JournalEntry& e) {
    return Fail(ErrorCode::kCorrupt, path, ": expected entries that follow each other, got record ", e.position,
                " in slot ", e.slot);
  };
  for (const JournalEntry& e : contents.entries) {
    SetState& state = setup.state;
    if (e.kind == JournalKind::kEmptied) continue;
    if (e.kind == JournalKind::kMoved || e.position >= state.entries.size()) return wrong(e);
    ExpertSetEntry& entry = state.entries[e.position];
    if (e.kind == JournalKind::kRecord) {
      const bool known =
          e.whole == static_cast<uint32_t>(WholeMatrices(e.bases)) && (state.manifest.compact || e.whole == 3);
      if (entry.slot != kNoSlot || !known) return wrong(e);
      state.AddRecord(e.position, e.bases, e.hash, e.chunk_hashes);
      const ExpertTable& table = state.table(e.position);
      if (entry.slot != e.slot || e.chunk_hashes.size() != ChunksOf(table.record_bytes, state.manifest.checksum_chunk))
        return wrong(e);
      setup.resumed_bytes += table.record_bytes;
    } else {
      if (entry.slot == kNoSlot || entry.replica_slot != kNoSlot) return wrong(e);
      state.AddCopy(e.position);
      if (entry.replica_slot != e.slot) return wrong(e);
      setup.resumed_bytes += state.table(e.position).record_bytes;
    }
  }
  return {};
}

Status ResumePack(UnfinishedPack unfinished, PackSetup& setup) {
  const std::string path = setup.folders[0] + "/" + kJournalName;
  setup.header = unfinished.contents.header;
  if (unfinished.manifest.drives.size() != setup.folders.size())
    return Fail(ErrorCode::kCorrupt, path, ": names ", unfinished.manifest.drives.size(), " drives for ",
                setup.folders.size(), " folders");
  setup.published = IsPublished(unfinished.manifest, setup.folders);
  std::optional<ExpertSetIndex> index;
  std::optional<SetCandidate> before;
  if (!setup.published && unfinished.manifest.generation > 1) {
    DFIN_TRY(FoundSets found, FindSets(setup.folders));
    for (SetCandidate& candidate : found.candidates)
      if (candidate.manifest.generation + 1 == unfinished.manifest.generation) before = std::move(candidate);
    if (!before)
      return Fail(ErrorCode::kCorrupt, path, ": expected generation ", unfinished.manifest.generation - 1,
                  " of the set beside it, got none");
    DFIN_TRY(index, LoadIndex(before->manifest, before->folders));
  }
  if (setup.published) {
    DFIN_TRY(const SetCandidate now, FindNewest(setup.folders));
    DFIN_TRY(index, LoadIndex(now.manifest, now.folders));
    setup.state = SetState::Resume(now.manifest, &now.manifest, &*index);
  } else {
    setup.state =
        SetState::Resume(unfinished.manifest, before ? &before->manifest : nullptr, index ? &*index : nullptr);
    DFIN_TRY_VOID(ApplyJournal(unfinished.contents, path, setup));
  }
  for (const ExpertTable& table : setup.state.manifest.tables) {
    DFIN_TRY_VOID(CheckSlotsThere(table.pieces, table.slots, setup.folders));
    DFIN_TRY_VOID(CheckSlotsThere(table.replica_pieces, table.replica_slots, setup.folders));
  }
  setup.journal = std::move(unfinished.contents);
  return {};
}

Status CheckMoved(const PackOptions& options, const PackSource& source, const PackSetup& setup,
                  const std::string& records) {
  MoveTarget target;
  target.set = ToHex(setup.state.manifest.set_id);
  target.records = setup.folders[0] + "/" + records;
  target.folders = setup.folders;
  target.model = options.model;
  target.state_folder = options.state_folder;
  target.has = [&](uint32_t position) { return setup.state.has(position); };
  return CheckMovedExperts(source.moved, target);
}

std::vector<ExpertSetDrive> DrivesOf(const PackOptions& options, const std::vector<std::string>& folders) {
  std::vector<ExpertSetDrive> drives;
  for (size_t d = 0; d < folders.size(); ++d)
    drives.push_back({LastPart(folders[d]), options.targets[d].bytes_per_second});
  const bool all = std::all_of(drives.begin(), drives.end(), [](const auto& d) { return d.bytes_per_second > 0; });
  for (ExpertSetDrive& drive : drives)
    if (!all) drive.bytes_per_second = 0;
  return drives;
}

}  // namespace

Result<PackSetup> PreparePack(const PackOptions& options, const PackSource& source, FolderLocks& locks) {
  PackSetup setup;
  DFIN_TRY(setup.folders, PrepareFolders(options.targets));
  DFIN_TRY_VOID(locks.Take(setup.folders, FolderLocks::Kind::kWrites));
  setup.notes = SharedDevices(setup.folders);
  Json identity = Identity(options, source, setup.folders);
  DFIN_TRY(std::optional<UnfinishedPack> unfinished, FindUnfinished(setup.folders, identity, source));
  if (unfinished) {
    DFIN_TRY_VOID(ResumePack(std::move(*unfinished), setup));
    DFIN_TRY_VOID(CheckMoved(options, source, setup, kJournalName));
    return setup;
  }
  DFIN_TRY(std::optional<SetCandidate> published, FindPublished(setup.folders, options, source));
  if (published) {
    DFIN_TRY(const ExpertSetIndex index, LoadIndex(published->manifest, published->folders));
    setup.state = SetState::Extend(published->manifest, index);
    setup.folders = published->folders;
  } else {
    const std::vector<ExpertSetDrive> drives = DrivesOf(options, setup.folders);
    if (drives[0].bytes_per_second == 0 && drives.size() > 1)
      setup.notes.push_back(
          "the drives are not all measured, so all get equal shares: run `deltafin drives` first for "
          "shares that follow their speed");
    setup.state = SetState::New(source, options.compact, options.checksum_chunk, drives, setup.folders);
  }
  // Before anything is said to be in the way: it may be what is left of the set that the experts were moved to.
  DFIN_TRY_VOID(CheckMoved(options, source, setup,
                           published ? ManifestFileName(published->manifest.generation) : std::string(kJournalName)));
  const uint64_t generation = setup.state.manifest.generation;
  DFIN_TRY_VOID(CheckNothingInTheWay(setup.folders, published ? Cat(kPiecePrefix, generation, "-") : kPiecePrefix));
  identity["to"] = setup.folders;
  identity["generation"] = generation;
  identity["manifest"] = setup.state.Text();
  setup.header = DumpJson(identity);
  return setup;
}

}  // namespace deltafin
