// shard_file: what is learned about one file of a checkpoint without reading its data: size, time, header.
//
// Only the 8 + N bytes of a header are read. Functions without state; thread-safe. Errors name the path.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace deltafin {

// Changes when a file is replaced or rewritten.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// kNotFound, kIo; kCorrupt when it is not a regular file.
Result<FileStamp> StampFile(const std::string& path);

struct ShardHeader {
  SafetensorsHeader header;
  uint64_t hash = 0;  // of the header's bytes
  FileStamp stamp;
};

// The file may be shorter or longer than the header says: see CheckShardSize.
Result<ShardHeader> ReadShardHeader(const std::string& path);
Status CheckShardSize(const ShardHeader& shard, const std::string& path);

inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// kNotFound (also when it is not a folder), kIo.
Status CheckCheckpointFolder(const std::string& folder);

}  // namespace deltafin
