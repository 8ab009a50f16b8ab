// inspect: what a checkpoint folder holds and what it lacks, for people. Works on incomplete and damaged folders:
// everything that is wrong is listed, not the first fault only. Experts that are in an expert set instead of the shards
// are there if the set is.
//
// Reads config, index, headers and manifests, never weights. A function without state. The only errors are a folder
// that is not there or cannot be read; everything else is in `problems`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/inspect_experts.h"
#include "spec/model_spec.h"

namespace deltafin {

struct ShardReport {
  std::string name;
  bool has_text = false;  // false: vision only, not needed
  bool needed = false;    // by a run: has_text, and more than experts that are in the expert set
  bool present = false;
  uint64_t bytes = 0;            // of the file
  uint64_t expected_bytes = 0;   // as its header says; 0 when the header could not be read
  int64_t text_tensors = 0;      // as the index says, or the header without an index
  std::string experts_moved_to;  // set that `pack --move` moved its experts to, 16 hexadecimal digits; "" = none
  std::string problem;           // "" when the shard is whole
};

struct FileReport {
  std::string name;
  bool present = false;
};

// Of a folder whose experts are fetched as they are used: a snapshot, also while another process fetches.
struct StreamReport {
  std::string endpoint, repository, commit;
  bool dense_complete = false;
  uint64_t experts = 0, expert_bytes = 0;  // fetched so far
  uint64_t shards_published = 0;           // whole, compared with the listed checksum since they were last changed
  uint64_t damaged_entries = 0;            // of the presence map
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
  int64_t shards_missing = 0;       // of those that are needed
  int64_t shards_damaged = 0;
  int64_t shards_moved = 0;  // whose experts `pack --move` took out
  int64_t tensors_missing = 0;
  int64_t tensors_in_set = 0;                 // in no shard, but in the expert set
  std::vector<std::string> examples_missing;  // the first few names
  std::string unfinished;                     // a sentence when a download into the folder has begun and has not ended
  std::optional<StreamReport> stream;         // empty: the folder is no such folder
  std::optional<ExpertSetReport> expert_set;  // empty: the shards are where experts should be
  std::vector<FileReport> tokenizer_files;
  std::vector<std::string> problems;  // whole sentences, as Checkpoint::Open words them
  bool weights_complete = false;      // an engine would find all weights
  bool complete = false;              // and the tokenizer is there
};

// Where to look for an expert set.
struct ExpertFolders {
  std::vector<std::string> folders = {};  // empty: those that pack noted, if it did
  std::string state_folder = {};          // pack notes them there when the model folder cannot be written; "" = none
};

Result<FolderReport> InspectFolder(const std::string& folder, const ExpertFolders& experts = {});

}  // namespace deltafin
