#include "engine/snapshot_format.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// What lies before a struct's last member, its hash.
template <typename T>
Bytes BeforeHash(const T& value) {
  return std::as_bytes(std::span(&value, 1)).first(offsetof(T, hash));
}

}  // namespace

SnapshotShape::SnapshotShape(uint64_t kda_bytes, const MlaCache& mla)
    : kda_bytes(kda_bytes), mla_layers(mla.layers()), mla_width(mla.width()), latents(mla.dtype()) {}

SnapshotHead MakeSnapshotHead(std::string_view magic, const SnapshotIdentity& identity, const SnapshotShape& shape) {
  SnapshotHead head{};
  std::copy(magic.begin(), magic.end(), head.magic);
  const size_t name = std::min(identity.backend.size(), sizeof head.backend);
  std::copy_n(identity.backend.begin(), name, head.backend);
  const std::string_view dtype = shape.latents == DType::kF32 ? "f32" : "bf16";
  std::copy(dtype.begin(), dtype.end(), head.dtype);
  head.fingerprint = identity.fingerprint;
  head.kda_bytes = shape.kda_bytes;
  head.mla_layers = static_cast<uint32_t>(shape.mla_layers);
  head.mla_width = static_cast<uint32_t>(shape.mla_width);
  head.arithmetic = kSnapshotArithmetic;
  head.hash = Hash64(BeforeHash(head));
  return head;
}

Status CheckSnapshotHead(const SnapshotHead& head, std::string_view magic, const SnapshotIdentity& identity,
                         const SnapshotShape& shape) {
  const std::string_view found(head.magic, sizeof head.magic);
  if (found.substr(0, 7) != magic.substr(0, 7)) return Fail(ErrorCode::kCorrupt, "not a file of this kind");
  if (found != magic) return Fail(ErrorCode::kUnsupported, "of another version of the format");
  if (head.hash != Hash64(BeforeHash(head))) return Fail(ErrorCode::kCorrupt, "the head's checksum is wrong");
  const SnapshotHead own = MakeSnapshotHead(magic, identity, shape);
  if (head.fingerprint != own.fingerprint) return Fail(ErrorCode::kUnsupported, "made with another model");
  if (std::memcmp(head.backend, own.backend, sizeof head.backend) != 0)
    return Fail(ErrorCode::kUnsupported, "computed by ",
                std::string(head.backend, strnlen(head.backend, sizeof head.backend)),
                ", whose bits differ from those of ", identity.backend);
  if (std::memcmp(head.dtype, own.dtype, sizeof head.dtype) != 0)
    return Fail(ErrorCode::kUnsupported, "made with --kv-dtype ", std::string(head.dtype, strnlen(head.dtype, 8)),
                ", this run has ", std::string(own.dtype, strnlen(own.dtype, 8)));
  if (head.hash != own.hash) return Fail(ErrorCode::kUnsupported, "computed by another version of the program");
  return {};
}

uint64_t HashOf(const LatentsRecord& record, uint64_t hash_before) { return Hash64(BeforeHash(record), hash_before); }
uint64_t HashOf(const SnapshotBody& body) { return Hash64(BeforeHash(body)); }
uint64_t HashOfTokens(std::span<const TokenId> tokens, uint64_t seed) { return Hash64(std::as_bytes(tokens), seed); }

std::vector<TokenId> PaddedTokens(std::span<const TokenId> tokens) {
  std::vector<TokenId> padded(tokens.begin(), tokens.end());
  padded.resize(AlignUp(tokens.size(), 2));
  return padded;
}

std::vector<PlacedLatents> ScanLatents(const SnapshotSource& file, const SnapshotHead& head, const SnapshotShape& shape,
                                       int64_t most) {
  constexpr uint64_t kPage = MlaCache::kPagePositions;
  std::vector<PlacedLatents> found;
  uint64_t at = sizeof head, position = 0, hash = head.hash;
  while (position < static_cast<uint64_t>(most)) {
    PlacedLatents next{};
    LatentsRecord& record = next.record;
    if (!file.Read(at, std::as_writable_bytes(std::span(&record, 1)))) break;
    if (record.first != position || record.count == 0 || record.count > kPage - position % kPage) break;
    if (record.hash != HashOf(record, hash)) break;
    next.at = at + sizeof record;
    const uint64_t bytes = shape.PayloadBytes(record.count);
    if (next.at > file.size() || bytes > file.size() - next.at) break;
    found.push_back(next);
    at = next.at + bytes;
    position = next.end();
    hash = record.hash;
  }
  return found;
}

}  // namespace deltafin
