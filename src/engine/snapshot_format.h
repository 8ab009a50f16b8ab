// snapshot_format.h: the layout of a session's files, and the scan of the records of one of them (docs/FORMAT.md).
//
// All numbers are little-endian. Pure functions; the parts of snapshot_files.cc that look at bytes they did not write.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/snapshot_files.h"
#include "model/sequence_state.h"

namespace deltafin {

// At the beginning of both files.
struct SnapshotHead {
  char magic[8];
  char backend[32];  // padded with zeros
  char dtype[8];     // of the latents: "f32" or "bf16"
  uint64_t fingerprint;
  uint64_t kda_bytes;  // of the KDA state
  uint32_t mla_layers;
  uint32_t mla_width;
  uint64_t arithmetic;  // kSnapshotArithmetic
  uint64_t hash;        // XXH3 of what is before it
};
static_assert(sizeof(SnapshotHead) == 88);

// Goes up when a change of the kernels changes bits.
inline constexpr uint64_t kSnapshotArithmetic = 2;
inline constexpr std::string_view kStateMagic = "DFINSTA2";
inline constexpr std::string_view kLatentsMagic = "DFINLAT1";

// After the head of the state file; then the tokens (32 bits each, padded to 8 bytes with zeros), the KDA state, and
// the logits after the last token where they were kept.
struct SnapshotBody {
  uint64_t positions;
  uint64_t latents_hash;  // `hash` of the record of latents that ends at `positions`
  uint64_t tokens_hash;   // of the tokens with their padding
  uint64_t kda_hash;
  uint64_t logits;  // their number: 0 or the vocabulary
  uint64_t logits_hash;
  uint64_t hash;  // of the numbers before it
};

// Before each group of latents: [layers, count, width]. No group lies in two pages of the cache.
struct LatentsRecord {
  uint32_t first, count;  // positions
  uint64_t tokens_hash;   // of these positions' tokens, seeded by that of the record before
  uint64_t payload_hash;  // layer after layer, each seeded by the one before, the first by tokens_hash
  uint64_t hash;          // of the numbers before it, seeded by that of the record before, the first by the head's
};
static_assert(sizeof(LatentsRecord) == 32);

struct PlacedLatents {
  LatentsRecord record;
  uint64_t at;  // of the payload in the file
  uint64_t end() const { return record.first + uint64_t{record.count}; }
};

// The same layout for every sequence of a model.
struct SnapshotShape {
  uint64_t kda_bytes = 0;
  int64_t mla_layers = 0, mla_width = 0;
  DType latents = DType::kF32;
  SnapshotShape(uint64_t kda_bytes, const MlaCache& mla);
  uint64_t PayloadBytes(int64_t count) const {
    return static_cast<uint64_t>(mla_layers * mla_width * count * ByteSize(latents));
  }
};

SnapshotHead MakeSnapshotHead(std::string_view magic, const SnapshotIdentity& identity, const SnapshotShape& shape);
// kCorrupt or kUnsupported.
Status CheckSnapshotHead(const SnapshotHead& head, std::string_view magic, const SnapshotIdentity& identity,
                         const SnapshotShape& shape);
uint64_t HashOf(const LatentsRecord& record, uint64_t hash_before);
uint64_t HashOfTokens(std::span<const TokenId> tokens, uint64_t seed);
uint64_t HashOf(const SnapshotBody& body);
// Tokens as they lie in the state file.
std::vector<TokenId> PaddedTokens(std::span<const TokenId> tokens);

// The records of a file of latents with a right head, up to `most` positions: as far as they are whole, in order and
// have right checksums of their own. Payloads are not read.
std::vector<PlacedLatents> ScanLatents(const SnapshotSource& file, const SnapshotHead& head, const SnapshotShape& shape,
                                       int64_t most);

}  // namespace deltafin
