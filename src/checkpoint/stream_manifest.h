// StreamManifest: deltafin-stream.json, which makes a model folder one whose experts are fetched as they are routed.
//
// Says where the rest of the shards comes from: endpoint, repository, the commit that everything is of, and name, size
// and SHA-256 of each file. While a shard is not whole it lies in the folder partial/, as a sparse file of its final
// size; the presence map (checkpoint/presence_map.h) says which bytes are there. Layout: docs/FORMAT.md. A value type;
// functions without state. Errors: kCorrupt, kUnsupported (a newer version), kIo.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

inline constexpr const char* kStreamManifestName = "deltafin-stream.json";
inline constexpr const char* kPartialFolder = "partial";
inline constexpr uint64_t kMaxStreamManifestBytes = uint64_t{16} << 20;

struct StreamFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256;    // 64 hexadecimal digits; "": the hub has none
  std::string git_sha1;  // 40, where there is no sha256
  bool operator==(const StreamFile&) const = default;
};

struct StreamManifest {
  std::string endpoint;  // "https://..."
  std::string repository;
  std::string revision;  // as asked for
  std::string commit;    // what it was then; everything is of this one
  bool dense_complete = false;
  std::vector<StreamFile> files;  // the shards

  // Over all that decides what bytes are meant; ties the presence map to its manifest. Never 0.
  uint64_t Id() const;
  int32_t Find(std::string_view name) const;  // -1: no such file
  std::string ToText() const;
  static Result<StreamManifest> FromText(std::string_view text, const std::string& what);
  bool operator==(const StreamManifest&) const = default;
};

bool IsStreamedFolder(const std::string& folder);
Result<StreamManifest> ReadStreamManifest(const std::string& folder);

// Where a shard lies: under its own name, or where a streamed folder keeps it until it is whole.
std::string ShardPath(const std::string& folder, const std::string& name);

}  // namespace deltafin
