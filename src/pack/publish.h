// publish: makes a finished generation of an expert set visible on all its drives, and removes what it replaces.
//
// The index goes to every drive first, then the manifest, then the pointer file. Whoever opens the set meanwhile finds
// the generation before, or (of a first one) none. Everything may be repeated after an interruption, with the same
// result.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/expert_set_index.h"
#include "checkpoint/expert_set_manifest.h"
#include "pack/disk.h"

namespace deltafin {

// Whether every folder holds the manifest of this generation with the same set_id and this drive number.
bool IsPublished(const ExpertSetManifest& manifest, const std::vector<std::string>& folders);

Status PublishSet(const DiskHook& hook, const ExpertSetManifest& manifest, const ExpertSetIndex& index,
                  const std::vector<std::string>& folders);

struct PointerPlace {
  std::string path;  // "" when it could not be written
  std::string note;  // why
};
PointerPlace PublishPointer(const DiskHook& hook, const std::string& model, const std::string& state_folder,
                            uint64_t set_id, const std::vector<std::string>& folders);

// What interrupted calls left in the model folder: halves of emptied shards (by name) and of the pointer file.
Status TidyModel(const DiskHook& hook, const std::string& model, const std::vector<std::string>& shards);

// Manifests and indexes of generations before `generation`, and leftovers of unpublished ones.
Status RemoveOlder(const DiskHook& hook, uint64_t generation, const std::vector<std::string>& folders);

}  // namespace deltafin
