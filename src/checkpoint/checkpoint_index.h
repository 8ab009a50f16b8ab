// CheckpointIndex: what opening a checkpoint found out, in a small binary file, so that the next start skips 136 MB of
// JSON.
//
// The file is named after the checkpoint's folder and carries sizes and times of config, index and shards: when any of
// them differs, or a byte of the file is damaged, it is ignored and written again. Everything in it is checked against
// the spec when it is read, so not even a forged file leads a read outside a shard. Format: docs/FORMAT.md, "header
// index".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tensor_directory.h"

namespace deltafin {

// Shards with text tensors, and every text tensor's place in them. Slots are TensorDirectory's.
struct CheckpointPlaces {
  std::vector<std::string> shards;  // file names
  std::vector<FileStamp> stamps;    // one per shard
  std::vector<TensorPlace> dense;
  std::vector<ExpertPlace> experts;
  uint64_t fingerprint = 0;
};

// What the places were derived from, beside the shards.
struct CheckpointSource {
  std::string folder;
  uint64_t config_hash = 0;
  FileStamp index;  // zero without an index file
  // Experts may be absent (shard -1); kept in a file of its own.
  bool experts_elsewhere = false;
  bool operator==(const CheckpointSource&) const = default;
};

std::string SerializePlaces(const CheckpointSource& source, const CheckpointPlaces& places);
// Empty when the bytes are damaged, of another version, or of another source, or do not fit the spec.
std::optional<CheckpointPlaces> ParsePlaces(std::string_view bytes, const CheckpointSource& source,
                                            const TensorDirectory& directory);

// Empty when there is no usable file, or when a shard has changed since.
std::optional<CheckpointPlaces> LoadPlaces(const std::string& cache_folder, const CheckpointSource& source,
                                           const TensorDirectory& directory);
// The folder is made when it is missing. Afterwards it holds the latest kMostHeaderFiles such files, and no leftovers
// of processes that died while they wrote one.
inline constexpr size_t kMostHeaderFiles = 16;
Status StorePlaces(const std::string& cache_folder, const CheckpointSource& source, const CheckpointPlaces& places);

// Where Load and Store look.
std::string PlacesPath(const std::string& cache_folder, const CheckpointSource& source);

}  // namespace deltafin
