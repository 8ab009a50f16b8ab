// expert_set_folders: which expert sets, and which generations of them, lie in the folders that somebody named.
//
// Reads manifests only. A generation is a candidate with those of its drives that were found. Errors: kInvalidArgument
// (no folders, folders of different sets, two folders for one drive), kNotFound and kCorrupt when there is no
// candidate. Functions without state; thread-safe.
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
  bool damaged = false;  // one of the problems is a damaged manifest
};

Result<FoundSets> FindSets(const std::vector<std::string>& folders);

}  // namespace deltafin
