#include "pack/set_doctor.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

bool AllZero(const std::byte* from, uint64_t bytes) {
  return std::all_of(from, from + bytes, [](std::byte b) { return b == std::byte{0}; });
}

CopyKind Other(CopyKind kind) { return kind == CopyKind::kPrimary ? CopyKind::kReplica : CopyKind::kPrimary; }

}  // namespace

SetDoctor::SetDoctor(const VerifyOptions& options, const SetFiles& set, const ExpertSetIndex& index, IoScheduler& io,
                     const PackSource* source)
    : options_(options),
      set_(set),
      index_(index),
      io_(io),
      source_(source),
      chunk_starts_(index.ChunkStarts(set.manifest())) {}

Result<std::unique_ptr<SetDoctor>> SetDoctor::Create(const VerifyOptions& options, const SetFiles& set,
                                                     const ExpertSetIndex& index, IoScheduler& io,
                                                     const PackSource* source) {
  uint64_t largest = set.manifest().page;
  for (const ExpertTable& table : set.manifest().tables) largest = std::max(largest, table.record_bytes);
  std::unique_ptr<SetDoctor> doctor(new SetDoctor(options, set, index, io, source));
  for (AlignedBuffer* buffer : {&doctor->record_, &doctor->truth_, &doctor->from_shards_, &doctor->again_}) {
    DFIN_TRY(*buffer, AlignedBuffer::Create(largest));
  }
  return doctor;
}

uint64_t SetDoctor::RecordBytes(uint32_t position) const {
  return set_.manifest().tables[index_.entries[position].table].record_bytes;
}

uint32_t SetDoctor::Slot(uint32_t position, CopyKind kind) const {
  const ExpertSetEntry& entry = index_.entries[position];
  return kind == CopyKind::kPrimary ? entry.slot : entry.replica_slot;
}

SetDoctor::Chunk SetDoctor::ReadChunk(uint32_t position, CopyKind kind, uint64_t number) {
  const ExpertSetEntry& entry = index_.entries[position];
  Chunk chunk;
  chunk.position = position;
  chunk.kind = kind;
  chunk.begin = number * set_.manifest().checksum_chunk;
  chunk.end = std::min(chunk.begin + set_.manifest().checksum_chunk, RecordBytes(position));
  chunk.hash = index_.chunk_hashes[chunk_starts_[position] + number];
  const std::vector<ExpertPieceFile>& pieces = set_.pieces(entry.table, kind);
  for (size_t p = 0; p < pieces.size(); ++p) {
    Part part;
    part.piece = p;
    part.begin = std::max(chunk.begin, pieces[p].cut.begin);
    part.end = std::min(chunk.end, pieces[p].cut.end);
    if (part.begin >= part.end) continue;
    chunk.absent = chunk.absent || set_.folders()[static_cast<size_t>(pieces[p].cut.drive)].empty();
    if (chunk.absent) continue;
    ReadPart read;
    size_t count = 0;
    if (set_.AddParts({entry.table, kind, Slot(position, kind), part.begin, part.end}, record_.data(), 1,
                      std::span(&read, 1), &count))
      part.read = ReadNow(io_, std::span(&read, 1));
    else
      part.read = Fail(ErrorCode::kNotFound, "the file is missing or cannot be opened");
    chunk.readable = chunk.readable && part.read;
    chunk.parts.push_back(std::move(part));
  }
  return chunk;
}

Status SetDoctor::Examine(uint32_t position, CopyKind kind, const BadRecordFn& on_bad) {
  const uint64_t chunks = chunk_starts_[position + 1] - chunk_starts_[position];
  bool any = false;
  const BadRecordFn tell = [&](const BadRecord& bad) {
    any = true;
    on_bad(bad);
  };
  for (uint64_t c = 0; c < chunks; ++c) {
    const Chunk chunk = ReadChunk(position, kind, c);
    if (chunk.absent) continue;
    const Bytes bytes(record_.data() + chunk.begin, static_cast<size_t>(chunk.end - chunk.begin));
    if (!chunk.readable || Hash64(bytes) != chunk.hash) ExamineChunk(chunk, tell);
  }
  if (any) return {};
  BadRecord bad;
  const size_t table = index_.entries[position].table;
  size_t piece = 0;  // the first that was read
  while (piece + 1 < set_.pieces(table, kind).size() && set_.file(table, kind, piece) == nullptr) ++piece;
  const ExpertPieceFile& first = set_.pieces(table, kind)[piece];
  bad.key = KeyAt(set_.manifest(), position);
  bad.replica = kind == CopyKind::kReplica;
  bad.file = set_.Path(table, kind, piece);
  bad.offset = first.Offset(Slot(position, kind));
  bad.bytes = first.cut.bytes();
  bad.what = "wrong when it was first read, right when it was read again: check cable, drive and memory";
  on_bad(bad);
  return {};
}

void SetDoctor::ExamineChunk(const Chunk& chunk, const BadRecordFn& on_bad) {
  std::string note;
  const bool truth = FindTruth(chunk, &note);
  for (const Part& part : chunk.parts) {
    const bool differs =
        !part.read || !truth ||
        std::memcmp(record_.data() + part.begin, truth_.data() + part.begin, part.end - part.begin) != 0;
    // Where no truth is known a part that was read may be right; it is named with the others of its chunk, unless one
    // that was not read explains the fault.
    if (!differs || (part.read && !truth && !chunk.readable)) continue;
    Tell(chunk, part, truth, note, on_bad);
  }
}

void SetDoctor::Tell(const Chunk& chunk, const Part& part, bool truth, const std::string& note,
                     const BadRecordFn& on_bad) {
  const ExpertSetEntry& entry = index_.entries[chunk.position];
  const ExpertPieceFile& piece = set_.pieces(entry.table, chunk.kind)[part.piece];
  uint64_t begin = part.begin, end = part.end;
  BadRecord bad;
  const ExpertGeometry geometry(set_.manifest().hidden, set_.manifest().intermediate);
  const uint64_t used = PackedRecordBytes(geometry, WholeMatrices(entry.bases));
  if (part.read && truth) {
    while (record_.data()[begin] == truth_.data()[begin]) ++begin;
    while (record_.data()[end - 1] == truth_.data()[end - 1]) --end;
  }
  bad.what = !part.read                         ? "read failed: " + part.read.error().message()
             : truth && begin >= used           ? "padding is not zero"
             : chunk.parts.size() > 1 && !truth ? "checksum differs (here or in the other part of the same chunk)"
                                                : "checksum differs";
  bad.key = KeyAt(set_.manifest(), chunk.position);
  bad.replica = chunk.kind == CopyKind::kReplica;
  bad.file = set_.Path(entry.table, chunk.kind, part.piece);
  bad.offset = piece.Offset(Slot(chunk.position, chunk.kind)) + (begin - piece.cut.begin);
  bad.bytes = end - begin;
  if (options_.repair) {
    const Status repaired = truth ? Rewrite(chunk, part, begin, end) : Fail(ErrorCode::kNotFound, note);
    bad.repaired = repaired.has_value();
    bad.repair_note = repaired ? "from " + note : repaired.error().message();
  }
  on_bad(bad);
}

bool SetDoctor::FindTruth(const Chunk& chunk, std::string* note) {
  if (TruthFromPadding(chunk)) {
    *note = "zeros";
    return true;
  }
  note->clear();
  return TruthFromCopy(chunk, note) || TruthFromShards(chunk, note);
}

bool SetDoctor::TruthFromPadding(const Chunk& chunk) {
  const ExpertGeometry geometry(set_.manifest().hidden, set_.manifest().intermediate);
  const uint64_t used = PackedRecordBytes(geometry, WholeMatrices(index_.entries[chunk.position].bases));
  if (!chunk.readable || used >= chunk.end) return false;
  const uint64_t padding = std::max(used, chunk.begin);
  const auto bytes = static_cast<size_t>(chunk.end - chunk.begin);
  std::memcpy(truth_.data() + chunk.begin, record_.data() + chunk.begin, bytes);
  std::memset(truth_.data() + padding, 0, static_cast<size_t>(chunk.end - padding));
  return Hash64(Bytes(truth_.data() + chunk.begin, bytes)) == chunk.hash;
}

bool SetDoctor::TruthFromCopy(const Chunk& chunk, std::string* note) {
  const ExpertSetEntry& entry = index_.entries[chunk.position];
  const CopyKind other = Other(chunk.kind);
  if (Slot(chunk.position, other) == kNoSlot) {
    *note = "there is no second copy";
    return false;
  }
  ReadPart parts[IoScheduler::kMaxParts];
  size_t count = 0;
  *note = "the other copy cannot be read";
  if (!set_.AddParts({entry.table, other, Slot(chunk.position, other), chunk.begin, chunk.end}, truth_.data(), 1, parts,
                     &count))
    return false;
  if (!ReadNow(io_, std::span<const ReadPart>(parts, count))) return false;
  *note = "the other copy's checksum is wrong too";
  if (Hash64(Bytes(truth_.data() + chunk.begin, static_cast<size_t>(chunk.end - chunk.begin))) != chunk.hash)
    return false;
  *note = other == CopyKind::kReplica ? "the second copy" : "the first copy";
  return true;
}

bool SetDoctor::TruthFromShards(const Chunk& chunk, std::string* note) {
  if (source_ == nullptr) {
    *note += ", and the shards cannot be read";
    return false;
  }
  const uint64_t bytes = RecordBytes(chunk.position);
  if (shards_hold_ != chunk.position) {
    shards_hold_.reset();
    const ExpertSetEntry& entry = index_.entries[chunk.position];
    const Status made = RecordFromShards(*source_, io_, chunk.position, entry.bases, from_shards_.data(), bytes);
    if (!made) {
      *note += "; " + made.error().message();
      return false;
    }
    if (Hash64(Bytes(from_shards_.data(), static_cast<size_t>(bytes))) != entry.hash) {
      *note += ", and the shard holds other bytes than were packed";
      return false;
    }
    shards_hold_ = chunk.position;
  }
  std::memcpy(truth_.data() + chunk.begin, from_shards_.data() + chunk.begin,
              static_cast<size_t>(chunk.end - chunk.begin));
  *note = "the shards";
  return true;
}

Result<OutputFile*> SetDoctor::Output(const std::string& path) {
  std::unique_ptr<OutputFile>& output = outputs_[path];
  if (output == nullptr) {
    DFIN_TRY(output, OutputFile::Open(path, options_.hook));
  }
  return output.get();
}

// Whole pages around what is wrong: a sector that cannot be read is written as a whole.
Status SetDoctor::Rewrite(const Chunk& chunk, const Part& part, uint64_t begin, uint64_t end) {
  const uint64_t page = set_.manifest().page;
  begin = AlignDown(begin, page);
  end = AlignUp(end, page);
  const auto bytes = static_cast<size_t>(end - begin);
  const ExpertSetEntry& entry = index_.entries[chunk.position];
  const ExpertPieceFile& piece = set_.pieces(entry.table, chunk.kind)[part.piece];
  const std::string path = set_.Path(entry.table, chunk.kind, part.piece);
  const uint64_t offset = piece.Offset(Slot(chunk.position, chunk.kind)) + (begin - piece.cut.begin);
  DFIN_TRY(OutputFile* const output, Output(path));
  DFIN_TRY_VOID(output->Write(offset, Bytes(truth_.data() + begin, bytes)));
  DFIN_TRY_VOID(output->Sync());
  DFIN_TRY(const DirectFile file, DirectFile::Open(path));
  ReadPart read;
  read.request = {&file, offset, bytes, again_.data()};
  read.drive = 1 + piece.cut.drive;
  DFIN_TRY_VOID(ReadNow(io_, std::span(&read, 1)));
  if (std::memcmp(again_.data(), truth_.data() + begin, bytes) != 0)
    return Fail(ErrorCode::kIo, "rewritten, and read back wrong: the drive does not keep what it is given");
  return {};
}

void SetDoctor::ZeroRange(BadRecord bad, const BadRecordFn& on_bad) {
  if (options_.repair) {
    const auto zero = [&]() -> Status {
      DFIN_TRY(OutputFile* const output, Output(bad.file));
      DFIN_TRY_VOID(output->Erase(bad.offset, bad.bytes));
      DFIN_TRY_VOID(output->Sync());
      DFIN_TRY(const DirectFile file, DirectFile::Open(bad.file));
      const uint64_t begin = AlignDown(bad.offset, set_.manifest().page);
      DFIN_TRY(const AlignedBuffer memory, AlignedBuffer::Create(bad.offset + bad.bytes - begin + file.alignment()));
      ReadPart read;
      read.request = {&file, bad.offset, bad.bytes, memory.data()};
      DFIN_TRY_VOID(ReadNow(io_, std::span(&read, 1)));
      if (!AllZero(memory.data() + bad.offset % file.alignment(), bad.bytes))
        return Fail(ErrorCode::kIo, "zeroed, and read back wrong");
      return {};
    };
    const Status repaired = zero();
    bad.repaired = repaired.has_value();
    bad.repair_note = repaired ? "from zeros" : repaired.error().message();
  }
  on_bad(bad);
}

}  // namespace deltafin
