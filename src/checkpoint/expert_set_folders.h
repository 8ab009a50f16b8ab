// expert_set_folders: which expert sets, and which generations of them, lie in the folders that somebody named.
//
// Reads manifests only. A generation is a candidate with those of its drives that were found. Errors: kInvalidArgument
// (no folders, folders of different sets, two folders for one drive), kNotFound and kCorrupt when there is no
// candidate; kIo when a folder is not there at all or cannot be looked at. Functions without state; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/expert_set_manifest.h"

namespace deltafin {

struct SetCandidate {
  ExpertSetManifest manifest;        // this_drive is 0
  std::vector<std::string> folders;  // by drive; "" where none of the given folders holds it
};

struct FoundSets {
  std::vector<SetCandidate> candidates;  // of one set, newest generation first; at least one
  // Folders and manifests that could not be used, and why: whole sentences.
  std::vector<std::string> problems;
  bool damaged = false;      // one of the problems is a damaged manifest
  bool unreachable = false;  // one of them is a folder that is not there or cannot be looked at
};

Result<FoundSets> FindSets(const std::vector<std::string>& folders);

}  // namespace deltafin
