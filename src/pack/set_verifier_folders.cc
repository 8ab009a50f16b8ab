// SetVerifier: which folders belong to the set, what they say about it, and which of its drives are not there.
#include <algorithm>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "pack/journal.h"
#include "pack/set_verifier.h"

namespace deltafin {
namespace {

// First and last byte that differ; a file of another length differs at its end.
std::pair<uint64_t, uint64_t> DifferingRange(Bytes got, Bytes expected) {
  const size_t common = std::min(got.size(), expected.size());
  size_t begin = 0, end = std::max(got.size(), expected.size());
  while (begin < common && got[begin] == expected[begin]) ++begin;
  if (got.size() == expected.size())
    while (end > begin + 1 && got[end - 1] == expected[end - 1]) --end;
  return {begin, std::max(end, begin + 1)};
}

const std::string& FirstOf(const SetCandidate& candidate) {
  return *std::ranges::find_if(candidate.folders, [](const std::string& f) { return !f.empty(); });
}

}  // namespace

// Two sets of one model may have one id: what their manifests say then differs, and neither may be mended from the
// other.
Status SetVerifier::CheckOneSet(const FoundSets& found) const {
  const ExpertSetManifest& m = found_.manifest;
  for (const SetCandidate& other : found.candidates) {
    if (other.manifest.generation != m.generation || other.manifest.ToText() == m.ToText()) continue;
    return Fail(ErrorCode::kInvalidArgument, FirstOf(other), ": expected a folder of the expert set that ",
                FirstOf(found_), " is of (", ToHex(m.set_id), ", generation ", m.generation, ", index checksum ",
                ToHex(m.index_hash), "), got one of a set with index checksum ", ToHex(other.manifest.index_hash),
                ": different packs wrote them: nothing was checked or changed: name the folders of one set");
  }
  return {};
}

// By its files, and by the checksum of the index, which a damaged manifest or the index itself still shows.
bool SetVerifier::IsDrive(const std::string& folder, size_t drive) const {
  const ExpertSetManifest& m = found_.manifest;
  for (const ExpertTable& table : m.tables)
    for (const ExpertPieceFile& piece : table.pieces)
      if (piece.cut.drive == static_cast<int32_t>(drive) && !FileExists(folder + "/" + piece.file)) return false;
  const Result<std::string> index = ReadWholeFile(folder + "/" + m.index_file, m.index_bytes);
  if (index && Hash64(*index) == m.index_hash) return true;
  const Result<std::string> text = ReadWholeFile(folder + "/" + ManifestFileName(m.generation), kMaxManifestBytes);
  return text && text->find(ToHex(m.set_id)) != std::string::npos &&
         text->find(ToHex(m.index_hash)) != std::string::npos;
}

// Folders whose manifest is damaged.
void SetVerifier::MatchFolders() {
  for (size_t d = 0; d < found_.folders.size(); ++d) {
    if (!found_.folders[d].empty()) continue;
    const auto match = std::ranges::find_if(options_.experts, [&](const std::string& folder) {
      return std::ranges::find(found_.folders, folder) == found_.folders.end() && IsDrive(folder, d);
    });
    if (match != options_.experts.end()) found_.folders[d] = *match;
  }
}

// The folder that drive `drive` probably is; its name when none of those given is likely.
std::string SetVerifier::ProbableFolder(const FoundSets& found, size_t drive) const {
  for (const SetCandidate& other : found.candidates)
    if (other.folders.size() > drive && !other.folders[drive].empty() &&
        std::ranges::find(found_.folders, other.folders[drive]) == found_.folders.end())
      return other.folders[drive];
  const std::string& name = found_.manifest.drives[drive].name;
  for (const std::string& folder : options_.experts)
    if (folder.ends_with("/" + name) && std::ranges::find(found_.folders, folder) == found_.folders.end())
      return folder;
  return name;
}

bool SetVerifier::IsUnreadable(uint32_t position) const {
  const ExpertSetEntry& entry = index_.entries[position];
  const auto gone = [&](const ExpertPieceFile& p) { return found_.folders[static_cast<size_t>(p.cut.drive)].empty(); };
  for (const ExpertPieceFile& piece : set_->pieces(entry.table, CopyKind::kPrimary)) {
    if (!gone(piece)) continue;
    if (entry.replica_slot == kNoSlot) return true;
    for (const ExpertPieceFile& copy : set_->pieces(entry.table, CopyKind::kReplica))
      if (copy.cut.begin < piece.cut.end && piece.cut.begin < copy.cut.end && gone(copy)) return true;
  }
  return false;
}

// The rest of the set is checked all the same.
void SetVerifier::TellMissing(const FoundSets& found) {
  const auto has_piece = [&](const std::vector<ExpertPieceFile>& pieces, size_t drive) {
    return std::ranges::any_of(pieces, [&](const auto& p) { return p.cut.drive == static_cast<int32_t>(drive); });
  };
  for (size_t d = 0; d < found_.folders.size(); ++d) {
    if (!found_.folders[d].empty()) continue;
    some_missing_ = true;
    uint64_t experts = 0;
    for (const ExpertSetEntry& entry : index_.entries)
      experts += entry.slot != kNoSlot && has_piece(set_->pieces(entry.table, CopyKind::kPrimary), d) ? 1 : 0;
    BadRecord bad;
    bad.file = ProbableFolder(found, d);
    bad.what = Cat(NameOfDrive(found_.manifest, d), ": expected its folder among those given, got none of them (",
                   WhyMissing(found, found_, options_.experts), "): the parts of ", experts,
                   " experts there were not checked");
    if (options_.repair)
      bad.repair_note = "mount the drive, or spread the set over other folders with `deltafin pack --rebalance`";
    Bad(bad);
  }
  for (uint32_t p = 0; p < index_.entries.size(); ++p) {
    const ExpertSetEntry& entry = index_.entries[p];
    if (entry.slot == kNoSlot) continue;
    const auto gone = [&](const auto& piece) { return found_.folders[static_cast<size_t>(piece.cut.drive)].empty(); };
    report_.records_partly += std::ranges::any_of(set_->pieces(entry.table, CopyKind::kPrimary), gone) ? 1 : 0;
    report_.records_unreadable += IsUnreadable(p) ? 1 : 0;
  }
}

bool SetVerifier::HasJournal() const {
  return std::ranges::any_of(found_.folders, [](const std::string& folder) {
    return !folder.empty() && FileExists(folder + "/" + kJournalName);
  });
}

// Experts that shards gave up to this set and that it does not have: bytes that it does not use may be these.
void SetVerifier::TellLost() {
  if (!source_) return;
  const auto has = [&](uint32_t p) { return p < index_.entries.size() && index_.entries[p].slot != kNoSlot; };
  for (const MovedShard& shard : source_->moved) {
    const uint64_t lost = shard.set == ToHex(found_.manifest.set_id) ? CountLost(shard, has) : 0;
    if (lost == 0 || HasJournal()) continue;
    experts_lost_ = true;
    BadRecord bad;
    bad.file = shard.path;
    bad.what = Cat("gave up ", shard.positions.size(), " experts to this expert set: expected all of them in it or in ",
                   "the journal of an unfinished pack, got ", shard.positions.size() - lost,
                   ": bring the missing manifest or ", kJournalName, " back, and keep every ", kPiecePrefix, "* file");
    if (options_.repair) bad.repair_note = "nothing else says where they are";
    Bad(bad);
  }
}

void SetVerifier::CheckSmallFile(const std::string& path, Bytes expected, const char* what) {
  const auto same = [&](const Result<std::string>& got) {
    return got && std::ranges::equal(std::as_bytes(std::span(*got)), expected);
  };
  const Result<std::string> got = ReadWholeFile(path, uint64_t{1} << 30);
  report_.bytes += expected.size();
  if (same(got)) return;
  BadRecord bad;
  bad.file = path;
  bad.bytes = expected.size();
  bad.what = got ? Cat("the ", what, " differs from the other drives'") : "read failed: " + got.error().message();
  if (got) {
    const auto [begin, end] = DifferingRange(std::as_bytes(std::span(*got)), expected);
    bad.offset = begin;
    bad.bytes = end - begin;
  }
  if (options_.repair) {
    const Status repaired = PublishFile(options_.hook, path, expected);
    bad.repaired = repaired && same(ReadWholeFile(path, uint64_t{1} << 30));
    bad.repair_note = repaired ? "from another drive" : repaired.error().message();
  }
  Bad(bad);
}

void SetVerifier::CheckManifests() {
  ExpertSetManifest own = found_.manifest;
  const std::vector<std::byte> index = index_.ToBytes(own);
  for (size_t d = 0; d < found_.folders.size(); ++d) {
    if (found_.folders[d].empty()) continue;
    own.this_drive = static_cast<int32_t>(d);
    const std::string text = own.ToText();
    CheckSmallFile(found_.folders[d] + "/" + ManifestFileName(own.generation), std::as_bytes(std::span(text)),
                   "manifest");
    CheckSmallFile(found_.folders[d] + "/" + own.index_file, index, "index");
  }
}

}  // namespace deltafin
