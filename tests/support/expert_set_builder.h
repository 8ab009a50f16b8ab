// expert_set_builder.h: writes an expert set from a checkpoint's shards, in test code, independent of src/pack.
//
// For tests of everything that reads sets. Records are laid into slots in another order than the experts', so that code
// which takes one for the other fails. Aborts when it cannot write: a test has nothing to do then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"

namespace deltafin::test {

struct ExpertSetOptions {
  std::vector<double> rates = {};  // by folder; empty: equal
  bool compact = false;
  double replicas = 0;  // share of each table's records that has a second copy, 0 to 1
  uint64_t generation = 1;
  uint64_t set_id = 0x5e7;
  uint64_t page = 0;         // 0: the smallest that the folders' file system reads directly
  uint64_t chunk_pages = 2;  // of the checksums' grid
  int64_t leave_out = 0;     // this many experts, as in a set packed from an incomplete download
};

struct BuiltExpertSet {
  ExpertSetManifest manifest;  // this_drive is 0
  ExpertSetIndex index;        // with chunks
  std::vector<std::string> folders;
};

// One drive for each of `folders`, which are made if they do not exist; files of other generations stay.
BuiltExpertSet BuildExpertSet(const std::string& model, const std::vector<std::string>& folders,
                              const ExpertSetOptions& options = {});

// "PARENT/drive0", "PARENT/drive1", ...
std::vector<std::string> DriveFolders(const std::string& parent, int count);

}  // namespace deltafin::test
