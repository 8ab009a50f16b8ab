// index_file: which shard file of a folder holds which tensor: model.safetensors.index.json, or one model.safetensors.
//
// Fills a TensorDirectory; keeps no tensor names. The index of the release has 497,220 names in 60 MB; the text and its
// parsed form live only during the call. Errors name file, tensor, expected and got.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tensor_directory.h"

namespace deltafin {

inline constexpr const char* kIndexFileName = "model.safetensors.index.json";
inline constexpr const char* kSingleFileName = "model.safetensors";

struct IndexedShard {
  std::string name;
  int64_t text_tensors = 0;
  int64_t dense_tensors = 0;  // of those, all that are not parts of routed experts
  int64_t other_tensors = 0;  // vision: the file need not be there
  std::string example;        // one text tensor in it
};

struct FolderIndex {
  bool has_index = false;            // false: one model.safetensors, which says itself what it holds
  FileStamp stamp;                   // of the index
  std::vector<IndexedShard> shards;  // sorted by name; TensorDirectory::index_shard counts in this order
};

// `unknown` collects text tensors that the spec does not call for; without it the first one is an error.
Result<FolderIndex> ReadFolderIndex(const std::string& folder, TensorDirectory& directory,
                                    std::vector<std::string>* unknown = nullptr);

// kCorrupt when a header holds a tensor that the index puts into another shard.
Status CheckIndexAgrees(const FolderIndex& index, const TensorDirectory& directory, int64_t slot, int32_t shard,
                        const std::string& path);

Failure UnknownTensorError(const std::string& what, std::string_view tensor);

}  // namespace deltafin
