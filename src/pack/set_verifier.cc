#include "pack/set_verifier.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/units.h"
#include "checkpoint/integrity.h"
#include "pack/record_stream.h"

namespace deltafin {
namespace {

constexpr int kMostThreads = 8;
constexpr uint64_t kWindowBytes = uint64_t{384} << 20;
constexpr size_t kMostInWindow = 256;

}  // namespace

void SetVerifier::Bad(const BadRecord& bad) {
  ++report_.bad;
  report_.repaired += bad.repaired ? 1 : 0;
  on_bad_(bad);
}

Result<bool> SetVerifier::Open() {
  const auto whole_file_is_bad = [&](const std::string& path, const std::string& what) {
    BadRecord bad;
    bad.file = path;
    if (const Result<std::string> text = ReadWholeFile(path, uint64_t{1} << 30)) bad.bytes = text->size();
    bad.what = what;
    if (options_.repair) bad.repair_note = "no other drive has a sound one";
    Bad(bad);
  };
  if (options_.repair) DFIN_TRY_VOID(locks_.Take(options_.experts, FolderLocks::Kind::kWrites));
  Result<FoundSets> found = FindSets(options_.experts);
  if (!found) {
    if (found.error().code() != ErrorCode::kCorrupt) return Failure(std::move(found.error()));
    for (const std::string& folder : options_.experts)
      for (const std::string& name : ListFiles(folder, kManifestPrefix))
        if (name.ends_with(".json")) whole_file_is_bad(folder + "/" + name, found.error().message());
    if (report_.bad == 0) return Failure(std::move(found.error()));
    return false;
  }
  found_ = NewestOf(*found);
  DFIN_TRY_VOID(CheckOneSet(*found));
  MatchFolders();
  Result<ExpertSetIndex> index = LoadIndex(found_.manifest, found_.folders);
  if (!index) {
    for (const std::string& folder : found_.folders)
      if (!folder.empty()) whole_file_is_bad(folder + "/" + found_.manifest.index_file, index.error().message());
    return false;
  }
  index_ = std::move(*index);
  chunk_starts_ = index_.ChunkStarts(found_.manifest);
  DFIN_TRY(set_, SetFiles::Open(found_.manifest, found_.folders));
  if (Result<PackSource> source = PackSource::Open(options_.model, options_.state_folder, options_.io, cancel_)) {
    if (source->MayBe(found_.manifest.model_id))
      source_ = std::move(*source);
    else
      report_.notes.push_back("the set was packed from another model than " + options_.model +
                              ", so its shards cannot repair it");
  } else if (source.error().code() == ErrorCode::kCancelled) {
    return Failure(std::move(source.error()));
  } else {
    report_.notes.push_back("the shards cannot be used for repair: " + source.error().message());
  }
  DFIN_TRY(io_, MakeScheduler(options_.io, options_.model, found_.folders));
  DFIN_TRY(doctor_, SetDoctor::Create(options_, *set_, index_, *io_, source_ ? &*source_ : nullptr));
  pool_ = std::make_unique<ThreadPool>(std::min(UsableCores(), kMostThreads));
  for (const ExpertTable& table : found_.manifest.tables)
    total_ += (uint64_t{table.slots} + table.replica_slots) * table.record_bytes;
  TellMissing(*found);
  TellLost();
  return true;
}

// Chunks of a table's records that lie wholly in folders that are there.
SetVerifier::Ranges SetVerifier::ChunksThere(size_t table, CopyKind kind) const {
  const uint64_t chunk = found_.manifest.checksum_chunk;
  std::vector<char> there(ChunksOf(found_.manifest.tables[table].record_bytes, chunk), 1);
  for (const ExpertPieceFile& piece : set_->pieces(table, kind)) {
    if (!found_.folders[static_cast<size_t>(piece.cut.drive)].empty()) continue;
    for (uint64_t c = piece.cut.begin / chunk; c < ChunksOf(piece.cut.end, chunk); ++c) there[c] = 0;
  }
  Ranges ranges;
  for (uint64_t c = 0; c < there.size(); ++c) {
    if (there[c] == 0) continue;
    if (ranges.empty() || ranges.back().second != c) ranges.emplace_back(c, c);
    ranges.back().second = c + 1;
  }
  return ranges;
}

bool SetVerifier::IsGood(uint32_t position, const Ranges& chunks, const std::byte* record) const {
  const uint64_t bytes = found_.manifest.tables[index_.entries[position].table].record_bytes;
  const uint64_t chunk = found_.manifest.checksum_chunk;
  if (chunks == Ranges{{0, ChunksOf(bytes, chunk)}})
    return Hash64(Bytes(record, static_cast<size_t>(bytes))) == index_.entries[position].hash;
  for (const auto& [begin, end] : chunks)
    for (uint64_t c = begin; c < end; ++c)
      if (Hash64(Bytes(record + c * chunk, static_cast<size_t>(std::min(chunk, bytes - c * chunk)))) !=
          index_.chunk_hashes[chunk_starts_[position] + c])
        return false;
  return true;
}

Status SetVerifier::CheckRecords(CopyKind kind) {
  const auto slot_of = [&](uint32_t p) {
    return kind == CopyKind::kPrimary ? index_.entries[p].slot : index_.entries[p].replica_slot;
  };
  const auto bytes_of = [&](uint32_t p) { return found_.manifest.tables[index_.entries[p].table].record_bytes; };
  std::vector<Ranges> there;
  for (size_t t = 0; t < found_.manifest.tables.size(); ++t) there.push_back(ChunksThere(t, kind));
  const uint64_t chunk = found_.manifest.checksum_chunk;
  std::vector<uint32_t> list;
  uint64_t largest = found_.manifest.page;
  for (uint32_t p = 0; p < index_.entries.size(); ++p) {
    if (slot_of(p) == kNoSlot) continue;
    list.push_back(p);
    largest = std::max(largest, bytes_of(p));
  }
  std::sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(index_.entries[a].table, slot_of(a)) < std::pair(index_.entries[b].table, slot_of(b));
  });
  std::vector<bool> missing(list.size(), false);
  const auto parts = [&](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    size_t count = 0;
    const uint32_t p = list[i];
    const size_t table = index_.entries[p].table;
    for (const auto& [begin, end] : there[table])
      if (!set_->AddParts({table, kind, slot_of(p), begin * chunk, std::min(end * chunk, bytes_of(p))}, buffer, 1, out,
                          &count))
        missing[i] = true;
    return missing[i] ? 0 : count;
  };
  const auto at_once = static_cast<size_t>(pool_->threads());
  const size_t window = std::clamp<size_t>(static_cast<size_t>(kWindowBytes / largest), 3 * at_once, kMostInWindow);
  DFIN_TRY(const auto stream, RecordStream::Create(*io_, list.size(), window, largest, parts));
  const BadRecordFn tell = [&](const BadRecord& bad) { Bad(bad); };
  for (;;) {
    std::vector<RecordStream::Item> items;
    while (items.size() < at_once) {
      DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
      if (!item) break;
      items.push_back(*item);
    }
    if (items.empty()) return {};
    std::vector<char> good(items.size(), 0);
    pool_->ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (!items[i].status || missing[items[i].index]) continue;
        const uint32_t p = list[items[i].index];
        good[i] = IsGood(p, there[index_.entries[p].table], items[i].buffer);
      }
    });
    for (size_t i = 0; i < items.size(); ++i) {
      const uint32_t p = list[items[i].index];
      stream->Recycle(items[i]);
      report_.records += kind == CopyKind::kPrimary ? 1 : 0;
      for (const auto& [begin, end] : there[index_.entries[p].table])
        report_.bytes += std::min(end * chunk, bytes_of(p)) - begin * chunk;
      if (!good[i]) DFIN_TRY_VOID(doctor_->Examine(p, kind, tell));
    }
    if (progress_) progress_(report_.bytes, std::max(total_, report_.bytes));
  }
}

Result<VerifyReport> SetVerifier::Run() {
  DFIN_TRY(const bool opened, Open());
  if (!opened) return std::move(report_);
  CheckManifests();
  DFIN_TRY_VOID(CheckRecords(CopyKind::kPrimary));
  DFIN_TRY_VOID(CheckRecords(CopyKind::kReplica));
  DFIN_TRY_VOID(CheckUnused());
  return std::move(report_);
}

}  // namespace deltafin
