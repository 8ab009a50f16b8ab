#include "checkpoint/expert_set_index.h"

#include <array>

#include "base/bytes.h"
#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

constexpr std::string_view kMagic = "DFINEXI1";  // the last character is the version
constexpr uint64_t kHeaderBytes = 32;            // magic, set, entries, chunks
constexpr uint64_t kEntryBytes = 24;
constexpr uint8_t kLargestBase = 239;

void Put64(std::vector<std::byte>& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<std::byte>(value >> shift & 255));
}
void Put32(std::vector<std::byte>& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<std::byte>(value >> shift & 255));
}

uint64_t Get(Bytes bytes, uint64_t at, int width) {
  uint64_t value = 0;
  for (int i = width; i-- > 0;) value = value << 8 | static_cast<uint64_t>(bytes[at + static_cast<uint64_t>(i)]);
  return value;
}

uint64_t EntryCount(const ExpertSetManifest& m) { return static_cast<uint64_t>(m.moe_layers * m.experts); }

ExpertSetEntry GetEntry(Bytes bytes, uint64_t at) {
  ExpertSetEntry entry;
  entry.slot = static_cast<uint32_t>(Get(bytes, at, 4));
  entry.replica_slot = static_cast<uint32_t>(Get(bytes, at + 4, 4));
  entry.table = static_cast<uint8_t>(bytes[at + 8]);
  for (size_t m = 0; m < 3; ++m) entry.bases[m] = static_cast<uint8_t>(bytes[at + 9 + m]);
  entry.hash = Get(bytes, at + 16, 8);
  return entry;
}

bool IsAbsent(const ExpertSetEntry& entry) {
  return entry.slot == kNoSlot && entry.replica_slot == kNoSlot && entry.table == 0 && entry.bases == kAllScalesWhole &&
         entry.hash == 0;
}

// Which slots of the tables are taken so far.
class SlotsTaken {
 public:
  explicit SlotsTaken(const ExpertSetManifest& manifest) : manifest_(manifest) {
    for (const ExpertTable& table : manifest.tables) {
      slots_.emplace_back(table.slots, false);
      replica_slots_.emplace_back(table.replica_slots, false);
    }
  }

  // What is wrong with the entry; "" when nothing is.
  std::string Take(const ExpertSetEntry& entry) {
    if (entry.table >= manifest_.tables.size()) return "a table that does not exist";
    for (const uint8_t base : entry.bases)
      if (base != kWholeScales && base > kLargestBase) return "a base of scales above 239";
    if (WholeMatrices(entry.bases) != manifest_.tables[entry.table].whole) return "a table of another record size";
    if (!Take(slots_[entry.table], entry.slot)) return Cat("slot ", entry.slot, " that is taken or does not exist");
    if (entry.replica_slot != kNoSlot && !Take(replica_slots_[entry.table], entry.replica_slot))
      return Cat("replica slot ", entry.replica_slot, " that is taken or does not exist");
    ++taken_;
    taken_replicas_ += entry.replica_slot != kNoSlot ? 1 : 0;
    return "";
  }
  bool all() const {
    uint64_t slots = 0, replicas = 0;
    for (const ExpertTable& table : manifest_.tables) {
      slots += table.slots;
      replicas += table.replica_slots;
    }
    return taken_ == slots && taken_replicas_ == replicas;
  }

 private:
  static bool Take(std::vector<bool>& slots, uint32_t slot) {
    if (slot >= slots.size() || slots[slot]) return false;
    slots[slot] = true;
    return true;
  }

  const ExpertSetManifest& manifest_;
  std::vector<std::vector<bool>> slots_, replica_slots_;
  uint64_t taken_ = 0, taken_replicas_ = 0;
};

}  // namespace

uint64_t ChunkCount(const ExpertSetManifest& manifest) {
  uint64_t chunks = 0;
  for (const ExpertTable& table : manifest.tables)
    chunks += table.slots * ChunksOf(table.record_bytes, manifest.checksum_chunk);
  return chunks;
}

uint64_t IndexFileBytes(const ExpertSetManifest& manifest) {
  return kHeaderBytes + EntryCount(manifest) * kEntryBytes + ChunkCount(manifest) * sizeof(uint64_t);
}

uint64_t ChunkHashOffset(const ExpertSetManifest& manifest, uint64_t chunk) {
  return kHeaderBytes + EntryCount(manifest) * kEntryBytes + chunk * sizeof(uint64_t);
}

std::vector<uint64_t> HashChunks(Bytes record, uint64_t chunk) {
  std::vector<uint64_t> hashes;
  for (size_t at = 0; at < record.size(); at += chunk)
    hashes.push_back(Hash64(record.subspan(at, std::min<size_t>(chunk, record.size() - at))));
  return hashes;
}

std::vector<uint64_t> ExpertSetIndex::ChunkStarts(const ExpertSetManifest& manifest) const {
  std::vector<uint64_t> starts;
  starts.reserve(entries.size() + 1);
  uint64_t at = 0;
  for (const ExpertSetEntry& entry : entries) {
    starts.push_back(at);
    if (entry.slot != kNoSlot) at += ChunksOf(manifest.tables[entry.table].record_bytes, manifest.checksum_chunk);
  }
  starts.push_back(at);
  return starts;
}

std::vector<std::byte> ExpertSetIndex::ToBytes(const ExpertSetManifest& manifest) const {
  DFIN_CHECK(entries.size() == EntryCount(manifest), "an index has an entry for every expert of the model");
  DFIN_CHECK(chunk_hashes.size() == ChunkCount(manifest), "an index is written with the checksums of all chunks");
  std::vector<std::byte> out;
  out.reserve(IndexFileBytes(manifest));
  for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
  Put64(out, manifest.set_id);
  Put64(out, entries.size());
  Put64(out, chunk_hashes.size());
  for (const ExpertSetEntry& entry : entries) {
    Put32(out, entry.slot);
    Put32(out, entry.replica_slot);
    out.push_back(static_cast<std::byte>(entry.table));
    for (const uint8_t base : entry.bases) out.push_back(static_cast<std::byte>(base));
    Put32(out, 0);
    Put64(out, entry.hash);
  }
  for (const uint64_t hash : chunk_hashes) Put64(out, hash);
  return out;
}

Result<ExpertSetIndex> ExpertSetIndex::FromBytes(Bytes bytes, const ExpertSetManifest& manifest, bool with_chunks,
                                                 const std::string& what) {
  const auto corrupt = [&](const auto&... parts) { return Fail(ErrorCode::kCorrupt, what, ": ", parts...); };
  const uint64_t size = IndexFileBytes(manifest);
  if (bytes.size() != size || size != manifest.index_bytes)
    return corrupt("expected ", manifest.index_bytes, " bytes as the manifest says, got ", bytes.size());
  const uint64_t hash = Hash64(bytes);
  if (hash != manifest.index_hash) return corrupt("expected the checksum that the manifest says, got another");
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), kMagic.size());
  if (magic != kMagic) return corrupt("expected '", kMagic, "' at the start, got something else");
  if (Get(bytes, 8, 8) != manifest.set_id) return corrupt("expected the index of this set, got another set's");
  if (Get(bytes, 16, 8) != EntryCount(manifest) || Get(bytes, 24, 8) != ChunkCount(manifest))
    return corrupt("expected the counts of the manifest, got others");

  ExpertSetIndex index;
  index.entries.reserve(EntryCount(manifest));
  SlotsTaken taken(manifest);
  for (uint64_t i = 0; i < EntryCount(manifest); ++i) {
    const uint64_t at = kHeaderBytes + i * kEntryBytes;
    const ExpertSetEntry entry = GetEntry(bytes, at);
    const std::string wrong = Get(bytes, at + 12, 4) != 0 ? "bytes that are not zero"
                              : IsAbsent(entry)           ? ""
                                                          : taken.Take(entry);
    if (!wrong.empty()) return corrupt("entry ", i, ": expected the place of a record, got ", wrong);
    index.entries.push_back(entry);
  }
  if (!taken.all()) return corrupt("expected every slot of the tables to be taken, got slots that nobody has");
  if (!with_chunks) return index;
  index.chunk_hashes.reserve(ChunkCount(manifest));
  for (uint64_t i = 0; i < ChunkCount(manifest); ++i)
    index.chunk_hashes.push_back(Get(bytes, ChunkHashOffset(manifest, i), 8));
  return index;
}

}  // namespace deltafin
