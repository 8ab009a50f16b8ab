// Fuzzes the two files of a folder whose experts are fetched as they are used: manifest and presence map. The first
// byte chooses. Checksums are made right, so that what follows them is reached.
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "checkpoint/presence_map.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stream_manifest.h"
#include "require.h"

namespace {

using namespace deltafin;
using fuzz::Require;

void Manifest(std::string_view body) {
  static_cast<void>(StreamManifest::FromText(body, "fuzz"));
  const std::string text = Cat(body, ",\"checksum\":\"", ToHex(Hash64(body)), "\"}\n");
  const auto manifest = StreamManifest::FromText(text, "fuzz");
  if (!manifest) return;
  Require(!manifest->files.empty() && manifest->Id() != 0);
  for (const StreamFile& file : manifest->files) {
    Require(IsPlainFileName(file.name) && file.bytes > 0);
    Require(file.sha256.size() == 64 || file.git_sha1.size() == 40);
  }
  const auto again = StreamManifest::FromText(manifest->ToText(), "fuzz");
  Require(again.has_value() && *again == *manifest);
}

// Entries from the input, their checksums made right by turns.
void Map(std::string_view data) {
  StreamManifest manifest;
  manifest.repository = "owner/name";
  manifest.commit = std::string(40, 'c');
  manifest.files = {{"a", 1000, std::string(64, '1'), ""}, {"b", uint64_t{1} << 40, std::string(64, '2'), ""}};
  std::string text = PresenceHeader(manifest.Id());
  constexpr size_t kBody = kPresenceEntryBytes - 8;
  for (bool right = true; data.size() >= kBody; data.remove_prefix(kBody), right = !right) {
    text += data.substr(0, kBody);
    const uint64_t check = Hash64(data.substr(0, kBody), manifest.Id());
    for (int i = 0; i < 8; ++i) text += static_cast<char>(check >> (8 * i) & 0xFF) ^ static_cast<char>(right ? 0 : 1);
  }
  text += data;
  const auto contents = ParsePresence(std::as_bytes(std::span(text)), manifest, "fuzz");
  Require(contents.has_value() && contents->good_bytes <= text.size());
  PresenceMap map(manifest.files.size());
  uint64_t bytes = 0;
  for (const PresenceEntry& entry : contents->entries) {
    const uint64_t size = manifest.files[static_cast<size_t>(entry.range.file)].bytes;
    Require(entry.range.bytes > 0 && entry.range.bytes <= size && entry.range.offset <= size - entry.range.bytes);
    map.Apply(entry);
    Require(map.HashOf(entry.range).has_value() == (entry.kind != PresenceKind::kDropped));
    if (entry.kind != PresenceKind::kDropped) Require(map.Covers(entry.range));
  }
  uint64_t age = 0;
  while (const auto oldest = map.Oldest(&age)) bytes += oldest->bytes;
  Require(bytes == map.expert_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0)
    Manifest(rest);
  else
    Map(rest);
  return 0;
}
