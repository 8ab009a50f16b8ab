// inspect: what a checkpoint folder holds and what it lacks, for people. Works on incomplete and damaged folders:
// everything that is wrong is listed, not the first fault only.
//
// Reads config, index and headers, never weights. A function without state. The only errors are a folder that is not
// there or cannot be read; everything else is in `problems`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/model_spec.h"

namespace deltafin {

struct ShardReport {
  std::string name;
  bool has_text = false;  // false: vision only, not needed
  bool present = false;
  uint64_t bytes = 0;           // of the file
  uint64_t expected_bytes = 0;  // as its header says; 0 when the header could not be read
  int64_t text_tensors = 0;     // as the index says, or the header without an index
  std::string problem;          // "" when the shard is whole
};

struct FileReport {
  std::string name;
  bool present = false;
};

struct FolderReport {
  std::string folder;
  std::string architecture;       // "" when config.json could not be read
  std::optional<ModelSpec> spec;  // empty when config.json is not one that this program runs
  // What the spec calls for.
  uint64_t dense_bytes = 0;
  uint64_t expert_bytes = 0;
  uint64_t bytes_per_expert = 0;
  int64_t text_tensors = 0;
  // What is there.
  bool has_index = false;
  std::vector<ShardReport> shards;  // sorted by name
  int64_t shards_missing = 0;       // of those with text
  int64_t shards_damaged = 0;
  int64_t tensors_missing = 0;
  std::vector<std::string> examples_missing;  // the first few names
  std::vector<FileReport> tokenizer_files;
  std::vector<std::string> problems;  // whole sentences, as Checkpoint::Open words them
  bool weights_complete = false;      // Checkpoint::Open would succeed
  bool complete = false;              // and the tokenizer is there
};

Result<FolderReport> InspectFolder(const std::string& folder);

}  // namespace deltafin
