#include "pack/set_state.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "checkpoint/integrity.h"
#include "pack/set_files.h"

namespace deltafin {
namespace {

constexpr uint64_t kLargestChunk = uint64_t{1} << 20;  // a read of the scheduler, about
constexpr uint64_t kChunksWanted = 16;                 // of a record

// A sixteenth of the record: small enough to name what is damaged, large enough that checksums cost no memory.
uint64_t ChunkFor(uint64_t record_bytes, uint64_t page) {
  return std::clamp(std::bit_floor(record_bytes / kChunksWanted), page, std::max(page, kLargestChunk));
}

ExpertTable MakeTable(const SetState& state, int whole) {
  const ExpertSetManifest& m = state.manifest;
  ExpertTable table;
  table.whole = whole;
  table.record_bytes = AlignUp(PackedRecordBytes(ExpertGeometry(m.hidden, m.intermediate), whole), m.page);
  const std::vector<double> shares = SharesOf(m.drives);
  const std::vector<CutPiece> cut = CutRecord(table.record_bytes, m.page, shares);
  table.pieces = SetState::NameFiles(cut, m.generation, whole, false);
  table.replica_pieces = SetState::NameFiles(CutReplica(cut, m.page, shares), m.generation, whole, true);
  return table;
}

// Every size of record that may still occur has a table, ascending.
void AddMissingTables(SetState& state) {
  std::vector<ExpertTable>& tables = state.manifest.tables;
  for (int whole = state.manifest.compact ? 0 : 3; whole <= 3; ++whole) {
    const auto there =
        std::find_if(tables.begin(), tables.end(), [&](const ExpertTable& t) { return t.whole == whole; });
    if (there == tables.end()) tables.push_back(MakeTable(state, whole));
  }
  std::sort(tables.begin(), tables.end(), [](const auto& a, const auto& b) { return a.whole < b.whole; });
}

// Tells sets of one model apart: which experts it begins with, how they are cut and where it is made. No time and no
// chance, so that a pack which was killed before its journal was there begins again with the same bytes.
uint64_t SetId(const ExpertSetManifest& m, const PackSource& source, const std::vector<std::string>& folders) {
  std::string text = Cat(source.fingerprint, " ", m.model_id, " ", m.compact, " ", m.page, " ", m.checksum_chunk);
  for (const ExpertTable& table : m.tables)
    for (const ExpertPieceFile& piece : table.pieces)
      text += Cat(" ", table.whole, ":", piece.cut.drive, ":", piece.cut.begin, "-", piece.cut.end);
  for (const std::string& folder : folders) text += Cat(" ", folder.size(), ":", folder);
  std::vector<char> held(source.positions(), 0);
  for (const SourceExpert& expert : source.experts) held[expert.position] = 1;
  return Hash64(std::as_bytes(std::span(held)), Hash64(text));
}

}  // namespace

std::vector<double> SharesOf(const std::vector<ExpertSetDrive>& drives) {
  std::vector<double> shares;
  for (const ExpertSetDrive& drive : drives) shares.push_back(drive.bytes_per_second);
  const bool all = std::all_of(shares.begin(), shares.end(), [](double rate) { return rate > 0; });
  if (!all) std::fill(shares.begin(), shares.end(), 1.0);
  return shares;
}

std::vector<ExpertPieceFile> SetState::NameFiles(const std::vector<CutPiece>& cut, uint64_t generation, int whole,
                                                 bool replica) {
  std::vector<ExpertPieceFile> files;
  for (const CutPiece& piece : cut)
    files.push_back({piece, Cat(kPiecePrefix, generation, "-t", whole, replica ? "-r" : "-", files.size(), ".bin"),
                     piece.begin, piece.bytes()});
  return files;
}

SetState SetState::New(const PackSource& source, bool compact, uint64_t checksum_chunk,
                       const std::vector<ExpertSetDrive>& drives, const std::vector<std::string>& folders) {
  SetState state;
  ExpertSetManifest& m = state.manifest;
  m.model_id = source.model_id;
  m.hidden = source.geometry().hidden;
  m.intermediate = source.geometry().intermediate;
  m.first_moe_layer = source.first_moe_layer();
  m.moe_layers = source.spec.num_moe_layers;
  m.experts = source.spec.num_experts;
  m.compact = compact;
  m.drives = drives;
  m.checksum_chunk = ChunkFor(AlignUp(static_cast<uint64_t>(source.geometry().record_bytes()), m.page), m.page);
  if (checksum_chunk != 0) m.checksum_chunk = AlignUp(checksum_chunk, m.page);
  AddMissingTables(state);
  m.set_id = SetId(m, source, folders);
  state.entries.resize(source.positions());
  state.chunks.resize(source.positions());
  return state;
}

SetState SetState::Extend(const ExpertSetManifest& manifest, const ExpertSetIndex& index) {
  ExpertSetManifest next = manifest;
  ++next.generation;
  return Resume(next, &manifest, &index);
}

SetState SetState::Resume(const ExpertSetManifest& manifest, const ExpertSetManifest* published,
                          const ExpertSetIndex* index) {
  SetState state;
  state.manifest = manifest;
  const auto positions = static_cast<size_t>(manifest.moe_layers * manifest.experts);
  state.entries.resize(positions);
  state.chunks.resize(positions);
  AddMissingTables(state);
  for (ExpertTable& table : state.manifest.tables) {
    // The set may have been packed without copies: their files have names now.
    if (!table.replica_pieces.empty()) continue;
    std::vector<CutPiece> cut;
    for (const ExpertPieceFile& piece : table.pieces) cut.push_back(piece.cut);
    table.replica_pieces =
        NameFiles(CutReplica(cut, manifest.page, SharesOf(manifest.drives)), manifest.generation, table.whole, true);
  }
  if (published == nullptr) return state;
  const std::vector<uint64_t> starts = index->ChunkStarts(*published);
  for (size_t p = 0; p < positions; ++p) {
    ExpertSetEntry& entry = state.entries[p];
    entry = index->entries[p];
    if (entry.slot == kNoSlot) continue;
    entry.table = static_cast<uint8_t>(state.TableOf(WholeMatrices(entry.bases)));
    state.chunks[p].assign(index->chunk_hashes.begin() + static_cast<std::ptrdiff_t>(starts[p]),
                           index->chunk_hashes.begin() + static_cast<std::ptrdiff_t>(starts[p + 1]));
  }
  return state;
}

std::string SetState::Text() const {
  ExpertSetManifest m = manifest;
  m.index_file = IndexFileName(m.generation);
  m.records = 0;
  for (const ExpertTable& table : m.tables) m.records += table.slots;
  m.index_bytes = IndexFileBytes(m);
  return m.ToText();
}

size_t SetState::TableOf(int whole) const {
  const auto& tables = manifest.tables;
  const auto it = std::find_if(tables.begin(), tables.end(), [&](const ExpertTable& t) { return t.whole == whole; });
  DFIN_CHECK(it != tables.end(), "a set has a table for every size of record");
  return static_cast<size_t>(it - tables.begin());
}

void SetState::AddRecord(uint32_t position, const ScaleBases& bases, uint64_t hash,
                         std::vector<uint64_t> chunk_hashes) {
  const size_t t = TableOf(WholeMatrices(bases));
  ExpertSetEntry& entry = entries[position];
  entry = {manifest.tables[t].slots++, kNoSlot, static_cast<uint8_t>(t), bases, hash};
  chunks[position] = std::move(chunk_hashes);
}

void SetState::AddCopy(uint32_t position) {
  entries[position].replica_slot = manifest.tables[entries[position].table].replica_slots++;
}

std::pair<ExpertSetManifest, ExpertSetIndex> SetState::Finish() const {
  std::pair<ExpertSetManifest, ExpertSetIndex> out;
  ExpertSetManifest& m = out.first;
  m = manifest;
  m.tables.clear();
  m.records = 0;
  std::vector<uint8_t> new_table(manifest.tables.size(), 0);
  for (size_t t = 0; t < manifest.tables.size(); ++t) {
    if (manifest.tables[t].slots == 0) continue;
    new_table[t] = static_cast<uint8_t>(m.tables.size());
    m.tables.push_back(manifest.tables[t]);
    m.records += manifest.tables[t].slots;
    if (m.tables.back().replica_slots == 0) m.tables.back().replica_pieces.clear();
  }
  for (size_t p = 0; p < entries.size(); ++p) {
    ExpertSetEntry entry = entries[p];
    if (entry.slot != kNoSlot) entry.table = new_table[entry.table];
    out.second.entries.push_back(entry);
    out.second.chunk_hashes.insert(out.second.chunk_hashes.end(), chunks[p].begin(), chunks[p].end());
  }
  m.index_file = IndexFileName(m.generation);
  m.index_bytes = IndexFileBytes(m);
  const std::vector<std::byte> bytes = out.second.ToBytes(m);
  m.index_hash = Hash64(bytes);
  return out;
}

}  // namespace deltafin
