#include "pack/pack_setup.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/hex.h"
#include "pack/publish.h"
#include "pack/set_files.h"

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

// The journal in one of the folders, if there is one; refused when it is of other work.
Result<std::optional<UnfinishedPack>> FindUnfinished(std::vector<std::string>& folders, Json identity) {
  const std::vector<std::string> given = folders;
  for (const std::string& folder : given) {
    DFIN_TRY(std::optional<PackJournal::Contents> found, PackJournal::Read(folder));
    if (!found) continue;
    const std::string path = folder + "/" + kJournalName;
    DFIN_TRY(const Json header, ParseJson(found->header, path));
    TakeOrderOfSet(header, folders, identity);
    const std::string differs = Differences(header, identity);
    if (!differs.empty() || folder != folders[0]) {
      const auto emptied = std::count_if(found->entries.begin(), found->entries.end(),
                                         [](const JournalEntry& e) { return e.kind == JournalKind::kEmptied; });
      return Fail(ErrorCode::kInvalidArgument, path, ": unfinished work with other options: ", differs,
                  ": give the options of then to finish it",
                  emptied > 0 || header.value("work", "") != "pack"
                      ? std::string("; do not remove the file: experts are only in this unfinished set")
                      : Cat(", or, to start over, remove this file and the ", kPiecePrefix,
                            header.value("generation", uint64_t{0}), "-* files in all its folders"));
    }
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
  DFIN_TRY(SetCandidate found, FindNewest(folders));
  const ExpertSetManifest& m = found.manifest;
  const auto refuse = [&](const auto&... parts) {
    return Fail(ErrorCode::kInvalidArgument, folders[0], ": the folders hold an expert set ", parts...);
  };
  if (!source.MayBe(m.model_id)) return refuse("of another model: give empty folders");
  if (!IsComplete(found) || found.folders.size() != folders.size())
    return refuse(
        "over ", m.drives.size(), " drives, and ", folders.size(),
        " folders are given: name exactly its folders to extend it, or use --rebalance to spread it over others");
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

Result<std::vector<std::string>> PrepareFolders(const std::vector<PackTarget>& targets) {
  if (targets.empty()) return Fail(ErrorCode::kInvalidArgument, "--to: expected at least one folder, got none");
  constexpr size_t kMostDrives = 64;
  if (targets.size() > kMostDrives)
    return Fail(ErrorCode::kInvalidArgument, "--to: expected at most ", kMostDrives, " folders, got ", targets.size());
  std::vector<std::string> folders;
  for (const PackTarget& target : targets) {
    DFIN_TRY_VOID(MakeWritableFolder(target.folder));
    std::string folder = FullPath(target.folder);
    if (std::find(folders.begin(), folders.end(), folder) != folders.end())
      return Fail(ErrorCode::kInvalidArgument, "--to: ", folder, ": expected each folder once, got it twice");
    folders.push_back(std::move(folder));
  }
  return folders;
}

std::vector<std::string> SharedDevices(const std::vector<std::string>& folders) {
  std::map<uint64_t, std::vector<std::string>> devices;
  for (const std::string& folder : folders)
    if (const Result<DeviceSpace> space = SpaceOf(folder)) devices[space->device].push_back(folder);
  std::vector<std::string> notes;
  for (const auto& [device, on_it] : devices) {
    if (on_it.size() < 2) continue;
    std::string names;
    for (const std::string& folder : on_it) names += (names.empty() ? "" : ", ") + folder;
    notes.push_back(names + ": on one device: they share its speed, and second copies there do not survive it");
  }
  return notes;
}

Status CheckNothingInTheWay(const std::vector<std::string>& folders, std::string_view prefix) {
  for (const std::string& folder : folders)
    for (const std::string& name : ListFiles(folder, prefix))
      return Fail(ErrorCode::kInvalidArgument, folder, "/", name,
                  ": is in the way: expected no file of that name, since no unfinished pack and no expert set here "
                  "knows it: move it away or remove it");
  return {};
}

Status CheckSpace(const std::vector<SpaceNeed>& needs, const std::string& freed_in, uint64_t freed) {
  struct Device {
    uint64_t needed = 0, free_bytes = 0;
    std::string folders;
  };
  std::map<uint64_t, Device> devices;
  for (const SpaceNeed& need : needs) {
    DFIN_TRY(const DeviceSpace space, SpaceOf(need.folder));
    Device& device = devices[space.device];
    device.needed += need.bytes;
    device.free_bytes = space.free_bytes;
    device.folders += (device.folders.empty() ? "" : ", ") + need.folder;
  }
  if (freed > 0) {
    const Result<DeviceSpace> space = SpaceOf(freed_in);
    const auto it = space ? devices.find(space->device) : devices.end();
    if (it != devices.end()) it->second.needed -= std::min(it->second.needed, freed);
  }
  std::string short_of;
  for (const auto& [number, device] : devices)
    if (device.needed > device.free_bytes)
      short_of += Cat(short_of.empty() ? "" : "; ", device.folders, ": ", FormatBytes(device.needed), " needed, ",
                      FormatBytes(device.free_bytes), " free");
  if (short_of.empty()) return {};
  return Fail(ErrorCode::kUnavailable, "not enough space: ", short_of,
              ": free some, or give more folders (shares follow measured speed, not free space)");
}

Result<PackSetup> PreparePack(const PackOptions& options, const PackSource& source) {
  PackSetup setup;
  DFIN_TRY(setup.folders, PrepareFolders(options.targets));
  setup.notes = SharedDevices(setup.folders);
  Json identity = Identity(options, source, setup.folders);
  DFIN_TRY(std::optional<UnfinishedPack> unfinished, FindUnfinished(setup.folders, identity));
  if (unfinished) {
    DFIN_TRY_VOID(ResumePack(std::move(*unfinished), setup));
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
    setup.state = SetState::New(source, options.compact, options.checksum_chunk, drives);
  }
  const uint64_t generation = setup.state.manifest.generation;
  DFIN_TRY_VOID(CheckNothingInTheWay(setup.folders, published ? Cat(kPiecePrefix, generation, "-") : kPiecePrefix));
  identity["to"] = setup.folders;
  identity["generation"] = generation;
  identity["manifest"] = setup.state.Text();
  setup.header = DumpJson(identity);
  return setup;
}

}  // namespace deltafin
