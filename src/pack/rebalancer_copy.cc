// Rebalancer: copying the pieces that change their drive.
#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/integrity.h"
#include "pack/rebalancer.h"
#include "pack/records_in_flight.h"

namespace deltafin {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{192} << 20;
constexpr size_t kMostInWindow = 64;

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

// Chunks that hold bytes of the pieces, as ranges of chunk numbers: what is read can be checked whole then.
Ranges ChunksOfPieces(const std::vector<ExpertPieceFile>& pieces, uint64_t chunk) {
  Ranges chunks;
  for (const ExpertPieceFile& piece : pieces) {
    const uint64_t begin = piece.cut.begin / chunk, end = ChunksOf(piece.cut.end, chunk);
    if (!chunks.empty() && begin <= chunks.back().second)
      chunks.back().second = std::max(chunks.back().second, end);
    else
      chunks.emplace_back(begin, end);
  }
  return chunks;
}

}  // namespace

Status Rebalancer::CopyAll() {
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) {
      const ExpertTable& table = plan_.after.tables[t];
      const uint64_t slots = kind == CopyKind::kPrimary ? table.slots : table.replica_slots;
      uint64_t bytes = 0;
      for (const ExpertPieceFile& piece : NewPieces(plan_, t, kind)) bytes += piece.cut.bytes();
      if (bytes == 0) continue;
      const uint64_t done = std::min<uint64_t>(slots, slots_done_[t][static_cast<size_t>(kind)]);
      progress_.records_total += slots;
      progress_.records_done += done;
      progress_.bytes_total += slots * bytes;
      progress_.bytes_done += done * bytes;
    }
  progress_.bytes_resumed = progress_.bytes_done;
  for (size_t t = 0; t < plan_.after.tables.size(); ++t)
    for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) DFIN_TRY_VOID(CopyTable(t, kind));
  return batches_->Flush();
}

Status Rebalancer::CopyTable(size_t table, CopyKind kind) {
  const std::vector<ExpertPieceFile> pieces = NewPieces(plan_, table, kind);
  const ExpertTable& after = plan_.after.tables[table];
  const uint32_t slots = kind == CopyKind::kPrimary ? after.slots : after.replica_slots;
  const uint32_t done = slots_done_[table][static_cast<size_t>(kind)];
  if (pieces.empty() || done >= slots) return {};
  DFIN_TRY_VOID(outputs_->Open(pieces, slots));
  return CopySlots(table, kind, done, pieces);
}

Status Rebalancer::CopySlots(size_t table, CopyKind kind, uint32_t first_slot,
                             const std::vector<ExpertPieceFile>& pieces) {
  const std::vector<uint32_t>& positions = positions_[table][static_cast<size_t>(kind)];
  const uint64_t record_bytes = plan_.before.tables[table].record_bytes;
  const uint64_t chunk = plan_.before.checksum_chunk;
  const Ranges chunks = ChunksOfPieces(pieces, chunk);
  uint64_t moved = 0;
  for (const ExpertPieceFile& piece : pieces) moved += piece.cut.bytes();
  const size_t window = std::clamp<size_t>(static_cast<size_t>(kWindowBytes / record_bytes), 4, kMostInWindow);
  std::vector<char> incomplete(positions.size(), 0);
  const auto parts = [&](size_t i, std::byte* buffer, std::span<ReadPart> out) -> size_t {
    size_t count = 0;
    for (const auto& [begin, end] : chunks)
      if (!AddAnyParts(positions[first_slot + i], begin * chunk, std::min(end * chunk, record_bytes), buffer, out,
                       &count))
        incomplete[i] = 1;
    return incomplete[i] ? 0 : count;
  };
  DFIN_TRY(const auto stream, RecordStream::Create(*io_, positions.size() - first_slot, window, record_bytes, parts));
  RecordsInFlight writing(*writers_, *stream, window / 2);
  for (;;) {
    DFIN_TRY(const std::optional<RecordStream::Item> item, stream->Next(cancel_));
    if (!item) return {};
    const auto slot = first_slot + static_cast<uint32_t>(item->index);
    const uint32_t position = positions[slot];
    if (item->hung) return FailWith(Status(item->status), NameOf(KeyAt(plan_.before, position)));
    if (incomplete[item->index] || !item->status || !ChunksAreGood(position, chunks, item->buffer))
      DFIN_TRY_VOID(Rescue(position, chunks, item->buffer));
    JournalEntry entry;
    entry.kind = JournalKind::kMoved;
    entry.position = static_cast<uint32_t>(table * 2 + static_cast<size_t>(kind));
    entry.slot = slot + 1;
    outputs_->Write(*writers_, writing.Add(*item), pieces, slot, item->buffer);
    progress_.bytes_done += moved;
    ++progress_.records_done;
    report_.bytes_written += moved;
    DFIN_TRY_VOID(batches_->Add(std::move(entry), moved));
    writing.MakeRoom();
    Tell("moving");
  }
}

bool Rebalancer::ChunksAreGood(uint32_t position, const Ranges& chunks, const std::byte* record) const {
  const uint64_t chunk = plan_.before.checksum_chunk, bytes = RecordBytes(position);
  for (const auto& [begin, end] : chunks)
    for (uint64_t c = begin; c < end; ++c) {
      const uint64_t at = c * chunk;
      if (Hash64(Bytes(record + at, static_cast<size_t>(std::min(chunk, bytes - at)))) !=
          index_.chunk_hashes[chunk_starts_[position] + c])
        return false;
    }
  return true;
}

// First copies where their drive is there, else second ones.
bool Rebalancer::AddAnyParts(uint32_t position, uint64_t begin, uint64_t end, std::byte* buffer,
                             std::span<ReadPart> out, size_t* count) const {
  const ExpertSetEntry& entry = index_.entries[position];
  const std::vector<ExpertPieceFile>& pieces = set_->pieces(entry.table, CopyKind::kPrimary);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const uint64_t from = std::max(begin, pieces[p].cut.begin), to = std::min(end, pieces[p].cut.end);
    if (from >= to) continue;
    const bool first = set_->file(entry.table, CopyKind::kPrimary, p) != nullptr;
    if (!first && entry.replica_slot == kNoSlot) return false;
    const SetFiles::Range range{entry.table, first ? CopyKind::kPrimary : CopyKind::kReplica,
                                first ? entry.slot : entry.replica_slot, from, to};
    if (!set_->AddParts(range, buffer, 1, out, count)) return false;
  }
  return true;
}

Status Rebalancer::Rescue(uint32_t position, const Ranges& chunks, std::byte* record) {
  for (const auto& [begin, end] : chunks)
    for (uint64_t c = begin; c < end; ++c) DFIN_TRY_VOID(RescueChunk(position, c, record));
  return {};
}

std::string Rebalancer::MissingFor(const SetFiles::Range& range) const {
  std::string text;
  const std::vector<ExpertPieceFile>& pieces = set_->pieces(range.table, range.kind);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const CutPiece& cut = pieces[p].cut;
    if (cut.end <= range.begin || cut.begin >= range.end || set_->file(range.table, range.kind, p) != nullptr) continue;
    text += Cat(text.empty() ? "" : " and ", NameOfDrive(plan_.before, static_cast<size_t>(cut.drive)),
                " is not there (", set_->Path(range.table, range.kind, p), ")");
  }
  return text;
}

Status Rebalancer::RescueChunk(uint32_t position, uint64_t chunk, std::byte* record) {
  const ExpertSetEntry& entry = index_.entries[position];
  const uint64_t begin = chunk * plan_.before.checksum_chunk;
  const uint64_t end = std::min(begin + plan_.before.checksum_chunk, RecordBytes(position));
  const Ranges only = {{chunk, chunk + 1}};
  std::string tried;
  for (const CopyKind kind : {CopyKind::kPrimary, CopyKind::kReplica}) {
    const uint32_t slot = kind == CopyKind::kPrimary ? entry.slot : entry.replica_slot;
    const char* name = kind == CopyKind::kPrimary ? "first copy" : "second copy";
    if (slot == kNoSlot) continue;
    ReadPart parts[IoScheduler::kMaxParts];
    size_t count = 0;
    const SetFiles::Range range{entry.table, kind, slot, begin, end};
    if (!set_->AddParts(range, record, 1, parts, &count)) {
      tried += Cat(name, ": ", MissingFor(range), "; ");
      continue;
    }
    const Status read = ReadNow(*io_, std::span<const ReadPart>(parts, count));
    if (read && ChunksAreGood(position, only, record)) return {};
    tried += Cat(name, ": ", read ? "checksum differs" : read.error().message(), "; ");
  }
  Status made = Fail(ErrorCode::kNotFound, "the model's shards are not there");
  if (source_) made = RecordFromShards(*source_, *io_, position, entry.bases, scratch_.data(), RecordBytes(position));
  if (made && ChunksAreGood(position, only, scratch_.data())) {
    std::memcpy(record + begin, scratch_.data() + begin, static_cast<size_t>(end - begin));
    return {};
  }
  return Fail(ErrorCode::kCorrupt, NameOf(KeyAt(plan_.before, position)), ": no sound source: ", tried,
              "shards: ", made ? "other bytes than were packed" : made.error().message(),
              ": nothing was changed in the set; mount what is missing, or try `deltafin verify --repair`");
}

}  // namespace deltafin
