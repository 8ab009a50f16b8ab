#include "checkpoint/expert_set_manifest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "checkpoint/compact_scales.h"
#include "checkpoint/expert_set_index.h"
#include "checkpoint/hex.h"
#include "checkpoint/manifest_text.h"
#include "checkpoint/safetensors.h"

namespace deltafin {
namespace {

constexpr std::string_view kFormat = "deltafin-experts";
constexpr uint64_t kVersion = 1;

constexpr size_t kMaxDrives = 64;
constexpr uint64_t kMaxPage = uint64_t{2} << 20;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxRecords = int64_t{1} << 22;
constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 31;
constexpr uint64_t kMaxIndexFileBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxGeneration = uint64_t{1} << 32;

Json PiecesToJson(const std::vector<ExpertPieceFile>& pieces) {
  Json list = Json::array();
  for (const ExpertPieceFile& piece : pieces)
    list.push_back({{"drive", piece.cut.drive},
                    {"begin", piece.cut.begin},
                    {"end", piece.cut.end},
                    {"file", piece.file},
                    {"file_begin", piece.file_begin},
                    {"stride", piece.stride}});
  return list;
}

Json ToJson(const ExpertSetManifest& m) {
  Json drives = Json::array(), tables = Json::array();
  for (const ExpertSetDrive& drive : m.drives) {
    const double rate = std::isfinite(drive.bytes_per_second) ? drive.bytes_per_second : 0;
    drives.push_back({{"name", PlainText(drive.name)}, {"bytes_per_second", rate}});
  }
  for (const ExpertTable& table : m.tables)
    tables.push_back({{"whole", table.whole},
                      {"record_bytes", table.record_bytes},
                      {"slots", table.slots},
                      {"pieces", PiecesToJson(table.pieces)},
                      {"replica_slots", table.replica_slots},
                      {"replica_pieces", PiecesToJson(table.replica_pieces)}});
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["set_id"] = ToHex(m.set_id);
  json["generation"] = m.generation;
  json["model_id"] = ToHex(m.model_id);
  json["hidden"] = m.hidden;
  json["intermediate"] = m.intermediate;
  json["first_moe_layer"] = m.first_moe_layer;
  json["moe_layers"] = m.moe_layers;
  json["experts"] = m.experts;
  json["page"] = m.page;
  json["checksum_chunk"] = m.checksum_chunk;
  json["compact"] = m.compact;
  json["drives"] = std::move(drives);
  json["this_drive"] = m.this_drive;
  json["records"] = m.records;
  json["tables"] = std::move(tables);
  json["index_file"] = m.index_file;
  json["index_bytes"] = m.index_bytes;
  json["index_hash"] = ToHex(m.index_hash);
  return json;
}

void ReadPieces(ManifestReader& in, const char* key, std::vector<ExpertPieceFile>& pieces) {
  in.List(key, 0, kMaxCutPieces, [&](ManifestReader& from) {
    ExpertPieceFile piece;
    piece.cut.drive = static_cast<int32_t>(from.Int("drive", 0, kMaxDrives - 1));
    piece.cut.begin = from.Number("begin", 0, kMaxRecordBytes);
    piece.cut.end = from.Number("end", 0, kMaxRecordBytes);
    piece.file = from.FileName("file");
    piece.file_begin = from.Number("file_begin", 0, kMaxRecordBytes);
    piece.stride = from.Number("stride", 1, kMaxRecordBytes);
    pieces.push_back(std::move(piece));
  });
}

void ReadTables(ManifestReader& in, ExpertSetManifest& m) {
  in.List("tables", 1, 4, [&](ManifestReader& from) {
    ExpertTable table;
    table.whole = static_cast<int32_t>(from.Int("whole", 0, 3));
    table.record_bytes = from.Number("record_bytes", 1, kMaxRecordBytes);
    table.slots = static_cast<uint32_t>(from.Int("slots", 0, kMaxRecords));
    ReadPieces(from, "pieces", table.pieces);
    table.replica_slots = static_cast<uint32_t>(from.Int("replica_slots", 0, kMaxRecords));
    ReadPieces(from, "replica_pieces", table.replica_pieces);
    m.tables.push_back(std::move(table));
  });
}

ExpertSetManifest ReadMembers(ManifestReader& in) {
  ExpertSetManifest m;
  m.set_id = in.Hex("set_id");
  m.generation = in.Number("generation", 1, kMaxGeneration);
  m.model_id = in.Hex("model_id");
  m.hidden = in.Int("hidden", kMxfp4Group, kMaxWidth);
  m.intermediate = in.Int("intermediate", kMxfp4Group, kMaxWidth);
  m.first_moe_layer = in.Int("first_moe_layer", 0, kMaxWidth);
  m.moe_layers = in.Int("moe_layers", 1, kMaxWidth);
  m.experts = in.Int("experts", 1, kMaxWidth);
  m.page = in.Number("page", 512, kMaxPage);
  m.checksum_chunk = in.Number("checksum_chunk", 512, kMaxRecordBytes);
  m.compact = in.Flag("compact");
  in.List("drives", 1, kMaxDrives, [&](ManifestReader& from) {
    ExpertSetDrive drive;
    drive.name = from.Text("name", 4096);
    drive.bytes_per_second = from.Rate("bytes_per_second");
    m.drives.push_back(std::move(drive));
  });
  m.this_drive = static_cast<int32_t>(in.Int("this_drive", 0, kMaxDrives - 1));
  m.records = in.Int("records", 0, kMaxRecords);
  ReadTables(in, m);
  m.index_file = in.FileName("index_file");
  m.index_bytes = in.Number("index_bytes", 1, kMaxIndexFileBytes);
  m.index_hash = in.Hex("index_hash");
  return m;
}

// What the members promise each other. Every Check names what contradicts.
class Consistency {
 public:
  Consistency(const ExpertSetManifest& manifest, const std::string& what) : m_(manifest), what_(what) {}

  Status Check() {
    if (m_.hidden % kMxfp4Group != 0 || m_.intermediate % kMxfp4Group != 0)
      return Bad("hidden, intermediate", "multiples of 32", Cat(m_.hidden, ", ", m_.intermediate));
    if (m_.moe_layers > kMaxRecords / m_.experts) return Bad("moe_layers * experts", "fewer", "too many");
    if (!std::has_single_bit(m_.page)) return Bad("page", "a power of two", m_.page);
    if (m_.checksum_chunk % m_.page != 0) return Bad("checksum_chunk", "whole pages", m_.checksum_chunk);
    if (static_cast<size_t>(m_.this_drive) >= m_.drives.size())
      return Bad("this_drive", Cat("one of ", m_.drives.size(), " drives"), m_.this_drive);
    std::set<int32_t> wholes;
    uint64_t records = 0;
    for (const ExpertTable& table : m_.tables) {
      DFIN_TRY_VOID(CheckTable(table));
      if (!wholes.insert(table.whole).second) return Bad("tables", "one for each `whole`", table.whole);
      records += table.slots;
    }
    if (!m_.compact && (m_.tables.size() != 1 || m_.tables[0].whole != 3))
      return Bad("tables", "one, with whole scales, where compact is false", m_.tables.size());
    if (records != static_cast<uint64_t>(m_.records) || m_.records > m_.moe_layers * m_.experts)
      return Bad("records", Cat(records, " as the tables have slots"), m_.records);
    if (m_.index_bytes != IndexFileBytes(m_)) return Bad("index_bytes", IndexFileBytes(m_), m_.index_bytes);
    return {};
  }

 private:
  template <typename Expected, typename Got>
  Failure Bad(std::string_view where, const Expected& expected, const Got& got) const {
    return Fail(ErrorCode::kCorrupt, what_, ": ", where, ": expected ", expected, ", got ", got);
  }

  Status CheckTable(const ExpertTable& table) {
    const ExpertGeometry geometry(m_.hidden, m_.intermediate);
    const auto values = static_cast<uint64_t>(m_.hidden) * static_cast<uint64_t>(m_.intermediate);
    if (values > kMaxRecordBytes / 2) return Bad("hidden * intermediate", "less", values);
    const uint64_t bytes = AlignUp(PackedRecordBytes(geometry, table.whole), m_.page);
    if (table.record_bytes != bytes) return Bad("record_bytes", bytes, table.record_bytes);
    DFIN_TRY_VOID(CheckPieces(table, table.pieces, table.slots, false));
    if (table.replica_slots > table.slots) return Bad("replica_slots", "at most as many as slots", table.replica_slots);
    if (table.replica_slots == 0 && table.replica_pieces.empty()) return {};
    DFIN_TRY_VOID(CheckPieces(table, table.replica_pieces, table.replica_slots, true));
    return CheckReplica(table);
  }

  Status CheckPieces(const ExpertTable& table, const std::vector<ExpertPieceFile>& pieces, uint64_t slots,
                     bool replica) {
    uint64_t at = 0;
    for (const ExpertPieceFile& piece : pieces) {
      const CutPiece& cut = piece.cut;
      if (static_cast<size_t>(cut.drive) >= m_.drives.size()) return Bad("piece", "one of the drives", cut.drive);
      if (cut.begin != at || cut.end <= cut.begin || cut.end > table.record_bytes)
        return Bad("piece", Cat("one that begins at ", at, " inside the record"), Cat(cut.begin, " to ", cut.end));
      if (cut.end % m_.page != 0 || piece.file_begin % m_.page != 0 || piece.stride % m_.page != 0)
        return Bad("piece", "whole pages", Cat(cut.begin, " to ", cut.end));
      if (piece.file_begin > cut.begin || cut.end - piece.file_begin > piece.stride)
        return Bad(piece.file, "room for the piece in a slot of the file", piece.stride);
      uint64_t bytes = 0;
      if (!MultiplyChecked(piece.stride, slots, &bytes) || bytes > uint64_t{INT64_MAX} / 2)
        return Bad(piece.file, "a file of less than 2^62 bytes", "more");
      DFIN_TRY_VOID(CheckFile(table, piece, replica));
      at = cut.end;
    }
    if (at != table.record_bytes) return Bad("pieces", Cat("them to end at ", table.record_bytes), at);
    return {};
  }

  // A file belongs to one table, and to its records or to their copies; pieces that share it share its slots.
  Status CheckFile(const ExpertTable& table, const ExpertPieceFile& piece, bool replica) {
    if (piece.file == m_.index_file || piece.file.starts_with("deltafin-experts-g"))
      return Bad(piece.file, "a name of its own", "the manifest's or the index's");
    const FileUse use{&table, replica, piece.file_begin, piece.stride};
    const auto [it, is_new] = files_.try_emplace({piece.cut.drive, piece.file}, use);
    if (!is_new && !(it->second == use)) return Bad(piece.file, "one use of this file", "two that differ");
    return {};
  }

  Status CheckReplica(const ExpertTable& table) const {
    size_t parts = 0;
    for (const ExpertPieceFile& a : table.pieces)
      for (const ExpertPieceFile& b : table.replica_pieces) {
        if (a.cut.begin >= b.cut.end || b.cut.begin >= a.cut.end) continue;
        ++parts;
        if (a.cut.drive == b.cut.drive) return Bad("replica_pieces", "copies on other drives", a.cut.drive);
      }
    if (parts > kMaxCutPieces) return Bad("replica_pieces", Cat("at most ", kMaxCutPieces, " parts of a read"), parts);
    return {};
  }

  struct FileUse {
    const ExpertTable* table;
    bool replica;
    uint64_t file_begin, stride;
    bool operator==(const FileUse&) const = default;
  };

  const ExpertSetManifest& m_;
  const std::string& what_;
  std::map<std::pair<int32_t, std::string>, FileUse> files_;
};

}  // namespace

std::string ExpertSetManifest::ToText() const { return ManifestText(ToJson(*this)); }

Result<ExpertSetManifest> ExpertSetManifest::FromText(std::string_view text, const std::string& what) {
  if (text.size() > kMaxManifestBytes)
    return Fail(ErrorCode::kCorrupt, what, ": expected at most ", kMaxManifestBytes, " bytes, got ", text.size());
  DFIN_TRY(const Json json, ParseManifest(text, {kFormat, kVersion}, what));
  ManifestReader members(json, what, "");
  ExpertSetManifest manifest = ReadMembers(members);
  DFIN_TRY_VOID(members.TakeStatus());
  DFIN_TRY_VOID(Consistency(manifest, what).Check());
  return manifest;
}

std::string ManifestFileName(uint64_t generation) { return Cat("deltafin-experts-g", generation, ".json"); }

}  // namespace deltafin
