#include "checkpoint/expert_set.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/json.h"
#include "checkpoint/expert_set_folders.h"
#include "checkpoint/hex.h"
#include "io/io_scheduler.h"

namespace deltafin {
namespace {

static_assert(kMaxCutPieces <= IoScheduler::kMaxParts);

// Where a part of every record of a table can be read.
struct PartSource {
  const ExpertPieceFile* piece = nullptr;
  const DirectFile* file = nullptr;  // null: there is none, or on a drive that is missing
  bool replica = false;              // counts the slots of second copies

  uint64_t Offset(const ExpertSetEntry& entry, uint64_t at) const {
    return piece->Offset(replica ? entry.replica_slot : entry.slot) + (at - piece->cut.begin);
  }
};

struct PartPlan {
  RecordRange range;
  PartSource source, copy;
};

struct TablePlan {
  std::vector<PartPlan> parts;          // of records without a second copy
  std::vector<PartPlan> parts_of_both;  // of records with one
};

Status CheckShape(const ExpertSetManifest& m, const ModelSpec& spec, const std::string& what) {
  const int64_t first = static_cast<int64_t>(spec.layers.size()) - spec.num_moe_layers;
  const std::tuple<const char*, int64_t, int64_t> rows[] = {
      {"routed expert width", spec.routed_expert_hidden_size, m.hidden},
      {"moe_intermediate_size", spec.moe_intermediate_size, m.intermediate},
      {"first layer with experts", first, m.first_moe_layer},
      {"layers with experts", spec.num_moe_layers, m.moe_layers},
      {"experts of a layer", spec.num_experts, m.experts}};
  for (const auto& [name, expected, got] : rows)
    if (expected != got)
      return Fail(ErrorCode::kCorrupt, what, ": ", name, ": expected ", expected, " as in config.json, got ", got,
                  ": this expert set was packed from another model");
  return {};
}

uint64_t EndOfFile(const ExpertTable& table, const ExpertPieceFile& piece, bool replica) {
  const uint32_t slots = replica ? table.replica_slots : table.slots;
  return slots == 0 ? 0 : piece.Offset(slots - 1) + piece.cut.bytes();
}

Result<DirectFile> OpenPiece(const std::string& path, uint64_t bytes, uint64_t page, bool buffered) {
  DFIN_TRY(DirectFile file, buffered ? DirectFile::OpenBuffered(path) : DirectFile::Open(path));
  if (file.size() < bytes)
    return Fail(ErrorCode::kCorrupt, file.path(), ": expected at least ", bytes, " bytes, got ", file.size(),
                ": the file was cut off");
  if (page % file.alignment() != 0)
    return Fail(ErrorCode::kUnsupported, file.path(), ": expected a drive that reads blocks of ", page,
                " bytes, got one of ", file.alignment(), ": pack the experts on this machine");
  return file;
}

std::optional<dev_t> DeviceOf(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) return std::nullopt;
  return info.st_dev;
}

}  // namespace

struct ExpertSet::State {
  explicit State(SetCandidate candidate)
      : manifest(std::move(candidate.manifest)),
        folders(std::move(candidate.folders)),
        problems(manifest.drives.size()),
        files(manifest.drives.size()) {}

  void OpenFiles(const ReadsBuffered& reads_buffered);
  Status LoadIndex();
  Status CheckReachable() const;
  void MakePlans();
  void Warn(const FoundSets& found, const std::vector<std::string>& given);
  int Missing() const;
  std::string DriveName(size_t drive) const;
  size_t Position(ExpertKey key) const;
  const std::vector<PartPlan>& Plan(const ExpertSetEntry& entry) const;

  const DirectFile* File(const ExpertPieceFile& piece) const {
    const auto& drive = files[static_cast<size_t>(piece.cut.drive)];
    const auto it = drive.find(piece.file);
    return it == drive.end() ? nullptr : &it->second;
  }

  ExpertSetManifest manifest;
  ExpertSetIndex index;
  std::vector<uint64_t> chunk_starts;
  std::vector<std::string> folders;
  std::vector<std::optional<Error>> problems;  // by drive: why it counts as missing although its folder is there
  std::vector<bool> buffered;                  // by drive: read through the page cache by choice
  std::vector<std::map<std::string, DirectFile>> files;
  std::vector<TablePlan> plans;
  std::vector<std::string> warnings;
};

void ExpertSet::State::OpenFiles(const ReadsBuffered& reads_buffered) {
  buffered.assign(folders.size(), false);
  for (size_t d = 0; d < folders.size(); ++d)
    buffered[d] = reads_buffered && !folders[d].empty() && reads_buffered(folders[d]);
  const auto open = [&](const ExpertTable& table, const ExpertPieceFile& piece, bool replica) {
    const auto drive = static_cast<size_t>(piece.cut.drive);
    if (folders[drive].empty() || problems[drive]) return;
    const uint64_t bytes = EndOfFile(table, piece, replica);
    if (const DirectFile* known = File(piece); known != nullptr && known->size() >= bytes) return;
    Result<DirectFile> file = OpenPiece(folders[drive] + "/" + piece.file, bytes, manifest.page, buffered[drive]);
    if (file)
      files[drive].insert_or_assign(piece.file, std::move(*file));
    else
      problems[drive] = std::move(file.error());
  };
  for (const ExpertTable& table : manifest.tables) {
    for (const ExpertPieceFile& piece : table.pieces) open(table, piece, false);
    for (const ExpertPieceFile& piece : table.replica_pieces) open(table, piece, true);
  }
}

Status ExpertSet::State::LoadIndex() {
  Status first_error;
  for (size_t drive = 0; drive < folders.size(); ++drive) {
    if (folders[drive].empty()) continue;
    const std::string path = folders[drive] + "/" + manifest.index_file;
    const Result<std::string> bytes = ReadWholeFile(path, manifest.index_bytes);
    Result<ExpertSetIndex> loaded =
        bytes ? ExpertSetIndex::FromBytes(std::as_bytes(std::span(*bytes)), manifest, true, path)
              : Result<ExpertSetIndex>(Failure(bytes.error()));
    if (loaded) {
      index = std::move(*loaded);
      chunk_starts = index.ChunkStarts(manifest);
      return {};
    }
    warnings.push_back(loaded.error().message() + ": another drive's copy of the index is used");
    if (first_error) first_error = Failure(std::move(loaded.error()));
  }
  return first_error;
}

// Every record must be readable without the drives that have no files.
Status ExpertSet::State::CheckReachable() const {
  const auto lost = [&](const ExpertPieceFile& piece, const ExpertTable& table, bool replica) {
    const auto drive = static_cast<size_t>(piece.cut.drive);
    return EndOfFile(table, piece, replica) > 0 && (folders[drive].empty() || problems[drive].has_value());
  };
  for (const ExpertTable& table : manifest.tables)
    for (const ExpertPieceFile& piece : table.pieces) {
      if (!lost(piece, table, false)) continue;
      const auto drive = static_cast<size_t>(piece.cut.drive);
      bool covered = table.replica_slots == table.slots;
      for (const ExpertPieceFile& copy : table.replica_pieces)
        if (copy.cut.begin < piece.cut.end && piece.cut.begin < copy.cut.end && lost(copy, table, true))
          covered = false;
      if (covered) continue;
      if (problems[drive]) return Failure(*problems[drive]);
      return Fail(ErrorCode::kNotFound, DriveName(drive), ": expected its folder among those given, got none of them");
    }
  return {};
}

void ExpertSet::State::MakePlans() {
  const auto source = [&](const ExpertPieceFile& piece, bool replica) {
    return PartSource{&piece, problems[static_cast<size_t>(piece.cut.drive)] ? nullptr : File(piece), replica};
  };
  for (const ExpertTable& table : manifest.tables) {
    TablePlan plan;
    for (const ExpertPieceFile& piece : table.pieces) {
      plan.parts.push_back({{piece.cut.begin, piece.cut.end}, source(piece, false), {}});
      for (const ExpertPieceFile& copy : table.replica_pieces) {
        const RecordRange range{std::max(piece.cut.begin, copy.cut.begin), std::min(piece.cut.end, copy.cut.end)};
        if (range.begin >= range.end) continue;
        PartPlan part{range, source(piece, false), source(copy, true)};
        if (part.source.file == nullptr) part.source = std::exchange(part.copy, {});
        plan.parts_of_both.push_back(part);
      }
    }
    plans.push_back(std::move(plan));
  }
}

int ExpertSet::State::Missing() const {
  int missing = 0;
  for (size_t drive = 0; drive < folders.size(); ++drive) missing += folders[drive].empty() || problems[drive] ? 1 : 0;
  return missing;
}

std::string ExpertSet::State::DriveName(size_t drive) const {
  return Cat("expert set ", ToHex(manifest.set_id), ", generation ", manifest.generation, ": drive ", drive, " ('",
             manifest.drives[drive].name, "')");
}

void ExpertSet::State::Warn(const FoundSets& found, const std::vector<std::string>& given) {
  for (size_t drive = 0; drive < folders.size(); ++drive) {
    if (!folders[drive].empty() && !problems[drive]) continue;
    const std::string why = problems[drive] ? problems[drive]->message() : "none of the given folders is it";
    warnings.push_back(Cat(DriveName(drive), " is missing (", why, "): its part is read from the second copies"));
  }
  for (const SetCandidate& other : found.candidates) {
    if (other.manifest.generation > manifest.generation)
      warnings.push_back(Cat("expert set ", ToHex(manifest.set_id), ": generation ", other.manifest.generation,
                             " is not complete; generation ", manifest.generation,
                             " is used: an interrupted pack can be resumed by giving the same command again"));
  }
  for (const std::string& folder : given) {
    if (std::find(folders.begin(), folders.end(), folder) != folders.end()) continue;
    const bool has_other = std::any_of(found.candidates.begin(), found.candidates.end(), [&](const SetCandidate& c) {
      return std::find(c.folders.begin(), c.folders.end(), folder) != c.folders.end();
    });
    if (has_other)
      warnings.push_back(Cat(folder, ": holds no drive of generation ", manifest.generation,
                             ", only another generation of the expert set (stale): not used"));
  }
  warnings.insert(warnings.end(), found.problems.begin(), found.problems.end());
  std::map<dev_t, std::string> devices;
  for (size_t drive = 0; drive < folders.size(); ++drive) {
    if (folders[drive].empty()) continue;
    const auto& open = files[drive];
    const bool refused = std::any_of(open.begin(), open.end(), [](const auto& f) { return f.second.buffered(); });
    if (refused && !buffered[drive])
      warnings.push_back(Cat(folders[drive], ": cannot be read directly: reads go through the page cache"));
    const std::optional<dev_t> device = DeviceOf(folders[drive]);
    if (!device) continue;
    const auto [it, is_new] = devices.try_emplace(*device, folders[drive]);
    if (!is_new)
      warnings.push_back(Cat(folders[drive], " and ", it->second, " are on one device: they share its speed"));
  }
}

size_t ExpertSet::State::Position(ExpertKey key) const {
  const int64_t row = key.layer - manifest.first_moe_layer;
  DFIN_CHECK(row >= 0 && row < manifest.moe_layers && key.expert >= 0 && key.expert < manifest.experts,
             "no such expert");
  return static_cast<size_t>(row * manifest.experts + key.expert);
}

const std::vector<PartPlan>& ExpertSet::State::Plan(const ExpertSetEntry& entry) const {
  const TablePlan& plan = plans[entry.table];
  return entry.replica_slot == kNoSlot ? plan.parts : plan.parts_of_both;
}

Result<ExpertSet> ExpertSet::Open(const std::vector<std::string>& folders, const ModelSpec& spec, Need need,
                                  const ReadsBuffered& reads_buffered) {
  DFIN_TRY(FoundSets found, FindSets(folders));
  std::unique_ptr<State> best;
  std::optional<Error> first_error;
  for (const SetCandidate& candidate : found.candidates) {
    auto state = std::make_unique<State>(candidate);
    DFIN_TRY_VOID(CheckShape(state->manifest, spec, Cat("expert set ", ToHex(state->manifest.set_id))));
    state->OpenFiles(reads_buffered);
    Status usable = state->CheckReachable();
    if (usable) usable = state->LoadIndex();
    if (!usable) {
      if (!first_error) first_error = std::move(usable.error());
      continue;
    }
    if (best == nullptr || state->Missing() < best->Missing()) best = std::move(state);
    if (best->Missing() == 0) break;
  }
  if (best == nullptr) {
    std::string message = first_error->message();
    for (const std::string& problem : found.problems) message += "; " + problem;
    ErrorCode code = first_error->code();
    if (code == ErrorCode::kNotFound && found.damaged) code = ErrorCode::kCorrupt;
    if (code == ErrorCode::kNotFound && found.unreachable) code = ErrorCode::kIo;
    return Failure(Error(code, std::move(message)));
  }
  const int64_t all = best->manifest.moe_layers * best->manifest.experts;
  if (need == Need::kAllRecords && best->manifest.records != all)
    return Fail(ErrorCode::kNotFound, "expert set ", ToHex(best->manifest.set_id), ": expected ", all, " experts, got ",
                best->manifest.records,
                ": it was packed from an incomplete download; run `deltafin pack` again when all shards are there");
  best->MakePlans();
  best->Warn(found, folders);
  return ExpertSet(std::move(best));
}

ExpertSet::ExpertSet(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExpertSet::ExpertSet(ExpertSet&&) noexcept = default;
ExpertSet& ExpertSet::operator=(ExpertSet&&) noexcept = default;
ExpertSet::~ExpertSet() = default;

const ExpertSetManifest& ExpertSet::manifest() const { return state_->manifest; }
const ExpertSetIndex& ExpertSet::index() const { return state_->index; }
const std::vector<std::string>& ExpertSet::warnings() const { return state_->warnings; }
const std::vector<std::string>& ExpertSet::folders() const { return state_->folders; }

std::vector<DriveInfo> ExpertSet::drives() const {
  std::vector<DriveInfo> drives;
  for (size_t d = 0; d < state_->folders.size(); ++d) {
    const ExpertSetDrive& drive = state_->manifest.drives[d];
    drives.push_back({state_->folders[d].empty() ? drive.name : state_->folders[d], drive.bytes_per_second});
  }
  return drives;
}

const ExpertSetEntry& ExpertSet::Entry(ExpertKey key) const { return state_->index.entries[state_->Position(key)]; }

const ExpertTable& ExpertSet::Table(const ExpertSetEntry& entry) const { return state_->manifest.tables[entry.table]; }

bool ExpertSet::HasCopy(ExpertKey key) const {
  const std::vector<PartPlan>& plan = state_->Plan(Entry(key));
  return std::all_of(plan.begin(), plan.end(), [](const PartPlan& part) { return part.copy.file != nullptr; });
}

size_t ExpertSet::Parts(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<ReadPart> out) const {
  return PartsAvoiding(key, slot, first_drive, {}, out);
}

size_t ExpertSet::PartsAvoiding(ExpertKey key, std::byte* slot, int32_t first_drive, std::span<const RecordRange> bad,
                                std::span<ReadPart> out) const {
  const ExpertSetEntry& entry = Entry(key);
  DFIN_CHECK(entry.slot != kNoSlot, "the record is not in the set");
  const std::vector<PartPlan>& plan = state_->Plan(entry);
  DFIN_CHECK(plan.size() <= out.size(), "no room for all parts of a read");
  bool avoided = bad.empty();
  for (size_t i = 0; i < plan.size(); ++i) {
    PartPlan part = plan[i];
    const uint64_t begin = part.range.begin, end = part.range.end;
    const bool is_bad =
        std::any_of(bad.begin(), bad.end(), [&](const RecordRange& r) { return r.begin < end && begin < r.end; });
    if (is_bad && part.copy.file != nullptr) {
      part.source = std::exchange(part.copy, {});
      avoided = true;
    }
    const auto drive = [&](const PartSource& from) { return first_drive + from.piece->cut.drive; };
    out[i] = {{part.source.file, part.source.Offset(entry, begin), end - begin, slot + begin}, drive(part.source), {}};
    if (part.copy.file != nullptr) out[i].copy = {part.copy.file, part.copy.Offset(entry, begin), drive(part.copy)};
  }
  return avoided ? plan.size() : 0;
}

size_t ExpertSet::PartsOfRanges(ExpertKey key, std::byte* slot, int32_t first_drive,
                                std::span<const RecordRange> ranges, bool copies, std::span<ReadPart> out) const {
  const ExpertSetEntry& entry = Entry(key);
  size_t count = 0;
  bool from_copies = false;
  for (const PartPlan& part : state_->Plan(entry)) {
    for (const RecordRange& range : ranges) {
      const uint64_t begin = std::max(part.range.begin, range.begin), end = std::min(part.range.end, range.end);
      if (begin >= end) continue;
      if (count == out.size()) return 0;
      const bool copy = copies && part.copy.file != nullptr;
      const PartSource& from = copy ? part.copy : part.source;
      from_copies = from_copies || copy;
      out[count++] = {
          {from.file, from.Offset(entry, begin), end - begin, slot + begin}, first_drive + from.piece->cut.drive, {}};
    }
  }
  return copies && !from_copies ? 0 : count;
}

std::span<const uint64_t> ExpertSet::ChunkHashes(ExpertKey key) const {
  const size_t position = state_->Position(key);
  const uint64_t first = state_->chunk_starts[position], count = state_->chunk_starts[position + 1] - first;
  return std::span(state_->index.chunk_hashes).subspan(first, count);
}

std::string ExpertSet::Where(ExpertKey key, uint64_t at) const { return Where(key, RecordRange{at, at + 1}); }

std::string ExpertSet::Where(ExpertKey key, RecordRange range) const {
  ReadPart parts[kMaxCutPieces];
  const size_t count = Parts(key, nullptr, 0, parts);
  const std::vector<PartPlan>& plan = state_->Plan(Entry(key));
  // Parts that go on in the same file are told as one.
  std::string text;
  const DirectFile* file = nullptr;
  uint64_t begin = 0, end = 0;
  const auto tell = [&] {
    if (file == nullptr) return;
    text += Cat(text.empty() ? "" : "; ", file->path(), end - begin == 1 ? ", byte " : ", bytes ", begin);
    if (end - begin > 1) text += Cat(" to ", end - 1);
  };
  for (size_t i = 0; i < count; ++i) {
    const uint64_t from = std::max(range.begin, plan[i].range.begin), to = std::min(range.end, plan[i].range.end);
    if (from >= to) continue;
    const uint64_t at = parts[i].request.offset + (from - plan[i].range.begin);
    if (parts[i].request.file != file || at != end) {
      tell();
      file = parts[i].request.file;
      begin = at;
    }
    end = at + (to - from);
  }
  tell();
  return text;
}

}  // namespace deltafin
