// Fuzzes what reads an expert set: manifest, index, and the file that says where a set is. The first byte chooses.
// Checksums are made right, so that what follows them is reached. Seeds: fuzz/corpus/expert_set.
#include <set>

#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

void CheckPieces(const ExpertSetManifest& m, const ExpertTable& table, const std::vector<ExpertPieceFile>& pieces,
                 uint64_t slots) {
  uint64_t at = 0;
  for (const ExpertPieceFile& piece : pieces) {
    Require(piece.cut.begin == at && piece.cut.end > at);
    Require(static_cast<size_t>(piece.cut.drive) < m.drives.size());
    Require(piece.file.find('/') == std::string::npos && !piece.file.empty() && piece.file != "..");
    if (slots > 0) Require(piece.Offset(slots - 1) + piece.cut.bytes() <= slots * piece.stride);
    if (slots > 0) Require(slots * piece.stride / slots == piece.stride);
    at = piece.cut.end;
  }
  Require(at == table.record_bytes);
}

void Manifest(std::string_view body) {
  static_cast<void>(ExpertSetManifest::FromText(body, "fuzz"));
  const std::string text = Cat(body, ",\"checksum\":\"", ToHex(Hash64(body)), "\"}\n");
  const auto manifest = ExpertSetManifest::FromText(text, "fuzz");
  if (!manifest) return;
  Require(static_cast<size_t>(manifest->this_drive) < manifest->drives.size());
  Require(manifest->index_bytes == IndexFileBytes(*manifest));
  for (const ExpertTable& table : manifest->tables) {
    CheckPieces(*manifest, table, table.pieces, table.slots);
    if (table.replica_slots > 0) CheckPieces(*manifest, table, table.replica_pieces, table.replica_slots);
  }
  const auto again = ExpertSetManifest::FromText(manifest->ToText(), "fuzz");
  Require(again.has_value() && again->ToText() == manifest->ToText());
}

// Two tables (all scales compact, and all whole) of a model with 2 x 3 experts of 32 x 32, one with second copies.
ExpertSetManifest SmallManifest() {
  ExpertSetManifest m;
  m.set_id = 7;
  m.hidden = m.intermediate = 32;
  m.first_moe_layer = 1;
  m.moe_layers = 2;
  m.experts = 3;
  m.page = 512;
  m.checksum_chunk = 1024;
  m.compact = true;
  m.drives = {{"a", 1}, {"b", 1}};
  m.records = 5;
  m.tables = {{3, 2048, 3, {{{0, 0, 1024}, "a", 0, 1024}, {{1, 1024, 2048}, "b", 1024, 1024}}, 2, {}},
              {0, 2048, 2, {{{0, 0, 2048}, "c", 0, 2048}}, 0, {}}};
  m.tables[0].replica_pieces = {{{1, 0, 1024}, "d", 0, 1024}, {{0, 1024, 2048}, "e", 1024, 1024}};
  m.index_file = "i";
  m.index_bytes = IndexFileBytes(m);
  return m;
}

void Index(std::string_view data) {
  static ExpertSetManifest manifest = SmallManifest();
  std::string bytes(data);
  manifest.index_hash = Hash64(std::string_view(bytes));
  if (!ExpertSetIndex::FromBytes(std::as_bytes(std::span(bytes)), manifest, true, "fuzz")) {
    bytes.resize(manifest.index_bytes);
    manifest.index_hash = Hash64(std::string_view(bytes));
  }
  const auto index = ExpertSetIndex::FromBytes(std::as_bytes(std::span(bytes)), manifest, true, "fuzz");
  if (!index) return;
  std::set<std::pair<int, uint32_t>> slots;
  for (const ExpertSetEntry& entry : index->entries) {
    if (entry.slot == kNoSlot) continue;
    Require(entry.table < manifest.tables.size() && entry.slot < manifest.tables[entry.table].slots);
    Require(slots.emplace(entry.table, entry.slot).second);
    Require(WholeMatrices(entry.bases) == manifest.tables[entry.table].whole);
    if (entry.replica_slot != kNoSlot) Require(entry.replica_slot < manifest.tables[entry.table].replica_slots);
  }
  Require(slots.size() == 5 && index->chunk_hashes.size() == ChunkCount(manifest));
  const std::vector<std::byte> again = index->ToBytes(manifest);
  Require(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), again.size()) == 0);
}

void Pointer(std::string_view text) {
  const auto pointer = ParseExpertPointer(text, "fuzz");
  if (!pointer) return;
  Require(!pointer->folders.empty());
  for (const std::string& folder : pointer->folders) Require(!folder.empty() && folder[0] == '/');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      Manifest(rest);
      break;
    case 1:
      Index(rest);
      break;
    default:
      Pointer(rest);
      break;
  }
  return 0;
}
