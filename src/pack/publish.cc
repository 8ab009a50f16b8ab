#include "pack/publish.h"

#include <charconv>
#include <optional>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/expert_set.h"
#include "pack/journal.h"
#include "pack/set_files.h"

namespace deltafin {
namespace {

// The generation in "deltafin-experts-g12.json".
std::optional<uint64_t> GenerationOf(std::string_view name) {
  uint64_t generation = 0;
  const char* begin = name.data() + kManifestPrefix.size();
  const char* const end = name.data() + name.size();
  const auto [at, failed] = std::from_chars(begin, end, generation);
  const std::string_view rest(at, static_cast<size_t>(end - at));
  if (failed != std::errc() || (rest != ".json" && rest != ".index")) return std::nullopt;
  return generation;
}

}  // namespace

bool IsPublished(const ExpertSetManifest& manifest, const std::vector<std::string>& folders) {
  for (size_t d = 0; d < folders.size(); ++d) {
    const std::string path = folders[d] + "/" + ManifestFileName(manifest.generation);
    const Result<std::string> text = ReadWholeFile(path, kMaxManifestBytes);
    if (!text) return false;
    const Result<ExpertSetManifest> there = ExpertSetManifest::FromText(*text, path);
    if (!there || there->set_id != manifest.set_id || there->this_drive != static_cast<int32_t>(d)) return false;
  }
  return true;
}

Status PublishSet(const DiskHook& hook, const ExpertSetManifest& manifest, const ExpertSetIndex& index,
                  const std::vector<std::string>& folders) {
  const std::vector<std::byte> bytes = index.ToBytes(manifest);
  for (const std::string& folder : folders) DFIN_TRY_VOID(PublishFile(hook, folder + "/" + manifest.index_file, bytes));
  ExpertSetManifest own = manifest;
  for (size_t d = 0; d < folders.size(); ++d) {
    own.this_drive = static_cast<int32_t>(d);
    const std::string text = own.ToText();
    DFIN_TRY_VOID(
        PublishFile(hook, folders[d] + "/" + ManifestFileName(own.generation), std::as_bytes(std::span(text))));
  }
  return {};
}

PointerPlace PublishPointer(const DiskHook& hook, const std::string& model, const std::string& state_folder,
                            uint64_t set_id, const std::vector<std::string>& folders) {
  if (const Status told = Announce(hook, DiskStep::kPublish, model); !told) return {"", told.error().message()};
  Result<std::string> path = WriteExpertPointer(model, state_folder, {set_id, folders});
  if (path) return {std::move(*path), ""};
  return {"",
          "which folders hold the experts could not be noted, so --experts must be given: " + path.error().message()};
}

Status TidyModel(const DiskHook& hook, const std::string& model, const std::vector<std::string>& shards) {
  DFIN_TRY_VOID(RemoveUnpublished(hook, model, kExpertPointerName));
  for (const std::string& shard : shards) DFIN_TRY_VOID(RemoveUnpublished(hook, model, shard));
  return {};
}

Status RemoveOlder(const DiskHook& hook, uint64_t generation, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    // Manifests first: without its index a manifest is damage, an index without manifest is nothing.
    for (const std::string_view kind : {".json", ".index"})
      for (const std::string& name : ListFiles(folder, kManifestPrefix))
        if (name.ends_with(kind) && GenerationOf(name).value_or(generation) < generation)
          DFIN_TRY_VOID(RemoveFile(hook, folder + "/" + name));
    DFIN_TRY_VOID(RemoveUnpublished(hook, folder, kManifestPrefix));
    DFIN_TRY_VOID(RemoveUnpublished(hook, folder, kJournalName));
  }
  return {};
}

}  // namespace deltafin
