#include "checkpoint/presence_map.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

constexpr std::string_view kMagic = "DFINPRS1";  // the last character is the version

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

template <typename T>
T Get(const std::byte* at) {
  static_assert(std::is_unsigned_v<T>);
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<T>(at[i]));
  return value;
}

// Empty when the entry is damaged or makes no sense.
std::optional<PresenceEntry> ParseEntry(const std::byte* at, uint64_t id, const StreamManifest& manifest) {
  constexpr size_t kBody = kPresenceEntryBytes - sizeof(uint64_t);
  if (Get<uint64_t>(at + kBody) != Hash64(Bytes(at, kBody), id)) return std::nullopt;
  const auto kind = Get<uint32_t>(at);
  const auto file = Get<uint32_t>(at + 4);
  const FileRange range{static_cast<int32_t>(file), Get<uint64_t>(at + 8), Get<uint64_t>(at + 16)};
  if (kind < 1 || kind > 4 || file >= manifest.files.size() || range.bytes == 0) return std::nullopt;
  const uint64_t size = manifest.files[file].bytes;
  if (range.bytes > size || range.offset > size - range.bytes) return std::nullopt;
  if (kind == static_cast<uint32_t>(PresenceKind::kWhole) && range.bytes != size) return std::nullopt;
  return PresenceEntry{static_cast<PresenceKind>(kind), range, Get<uint64_t>(at + 24)};
}

}  // namespace

std::string PresenceHeader(uint64_t manifest_id) {
  std::string out(kMagic);
  Put(out, manifest_id);
  Put(out, Hash64(std::string_view(out)));
  return out;
}

std::string PresenceEntryText(const PresenceEntry& entry, uint64_t manifest_id) {
  std::string out;
  Put(out, static_cast<uint32_t>(entry.kind));
  Put(out, static_cast<uint32_t>(entry.range.file));
  Put(out, entry.range.offset);
  Put(out, entry.range.bytes);
  Put(out, entry.hash);
  Put(out, uint64_t{0});
  Put(out, Hash64(std::string_view(out), manifest_id));
  return out;
}

Result<PresenceContents> ParsePresence(Bytes bytes, const StreamManifest& manifest, const std::string& what) {
  const uint64_t id = manifest.Id();
  const std::string header = PresenceHeader(id);
  if (bytes.size() < header.size() || std::memcmp(bytes.data(), header.data(), header.size()) != 0)
    return Fail(ErrorCode::kCorrupt, what, ": expected the header of a presence map of this ", kStreamManifestName,
                ", got something else: the file is damaged or of another folder: remove it and give the `deltafin "
                "setup --dense-only` command again");
  PresenceContents contents;
  const uint64_t count = (bytes.size() - header.size()) / kPresenceEntryBytes;
  for (uint64_t i = 0; i < count; ++i) {
    const auto entry = ParseEntry(bytes.data() + kPresenceHeaderBytes + i * kPresenceEntryBytes, id, manifest);
    if (entry)
      contents.entries.push_back(*entry);
    else
      ++contents.damaged;
  }
  contents.good_bytes = kPresenceHeaderBytes + count * kPresenceEntryBytes;
  return contents;
}

void PresenceMap::Apply(const PresenceEntry& entry) {
  if (entry.kind == PresenceKind::kWhole) {
    compared_[static_cast<size_t>(entry.range.file)] = entry.hash;
    return;
  }
  Forget(entry.range);
  if (entry.kind == PresenceKind::kDropped) return;
  Held held{entry.range.bytes, entry.hash, 0};
  if (entry.kind == PresenceKind::kExpert) {
    held.age = next_age_++;
    by_age_.emplace(held.age, entry.range);
    expert_bytes_ += held.bytes;
  }
  files_[static_cast<size_t>(entry.range.file)][entry.range.offset] = held;
}

void PresenceMap::Forget(const FileRange& range) {
  auto& held = files_[static_cast<size_t>(range.file)];
  const auto it = held.find(range.offset);
  if (it == held.end()) return;
  if (it->second.age != 0) {
    by_age_.erase(it->second.age);
    expert_bytes_ -= it->second.bytes;
  }
  held.erase(it);
}

std::optional<uint64_t> PresenceMap::HashOf(const FileRange& range) const {
  const auto& held = files_[static_cast<size_t>(range.file)];
  const auto it = held.find(range.offset);
  if (it == held.end() || it->second.bytes != range.bytes) return std::nullopt;
  return it->second.hash;
}

std::optional<FileRange> PresenceMap::Oldest(uint64_t* after) const {
  const auto it = by_age_.upper_bound(*after);
  if (it == by_age_.end()) return std::nullopt;
  *after = it->first;
  return it->second;
}

bool PresenceMap::Covers(const FileRange& range) const {
  uint64_t next = range.offset;
  const uint64_t end = range.offset + range.bytes;
  const auto& held = files_[static_cast<size_t>(range.file)];
  auto it = held.upper_bound(next);
  if (it != held.begin()) --it;
  for (; it != held.end() && it->first <= next && next < end; ++it) next = std::max(next, it->first + it->second.bytes);
  return next >= end;
}

std::vector<PresenceEntry> PresenceMap::Of(int32_t file) const {
  std::vector<PresenceEntry> entries;
  for (const auto& [offset, held] : files_[static_cast<size_t>(file)])
    entries.push_back(
        {held.age == 0 ? PresenceKind::kDense : PresenceKind::kExpert, {file, offset, held.bytes}, held.hash});
  return entries;
}

}  // namespace deltafin
