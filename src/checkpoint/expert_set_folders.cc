#include "checkpoint/expert_set_folders.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "base/json.h"
#include "checkpoint/hex.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kNameStart = "deltafin-experts-g";
constexpr std::string_view kNameEnd = ".json";
constexpr size_t kMaxManifests = 64;  // of one folder; the newest are looked at

struct FolderManifests {
  std::string folder;
  std::vector<ExpertSetManifest> manifests;
};

std::optional<uint64_t> GenerationOf(const std::string& name) {
  if (!name.starts_with(kNameStart) || !name.ends_with(kNameEnd)) return std::nullopt;
  if (name.size() <= kNameStart.size() + kNameEnd.size()) return std::nullopt;
  const char* begin = name.data() + kNameStart.size();
  const char* end = name.data() + name.size() - kNameEnd.size();
  uint64_t generation = 0;
  const auto [stop, error] = std::from_chars(begin, end, generation);
  if (error != std::errc() || stop != end || name != ManifestFileName(generation)) return std::nullopt;
  return generation;
}

Result<ExpertSetManifest> ReadManifest(const std::string& path, uint64_t generation) {
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxManifestBytes));
  DFIN_TRY(ExpertSetManifest manifest, ExpertSetManifest::FromText(text, path));
  if (manifest.generation != generation)
    return Fail(ErrorCode::kCorrupt, path, ": expected generation ", generation, " as its name says, got ",
                manifest.generation);
  return manifest;
}

// Generations whose manifests lie in `folder`, newest first.
Result<std::vector<uint64_t>> ListGenerations(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found)
    return Fail(ErrorCode::kIo, folder, ": expected a folder of an expert set, got nothing of that name: is the ",
                "drive mounted?");
  if (!error && !fs::is_directory(status))
    return Fail(ErrorCode::kNotFound, folder, ": expected a folder of an expert set, got something else");
  std::vector<uint64_t> generations;
  if (!error) {
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      if (const auto generation = GenerationOf(it->path().filename().string())) generations.push_back(*generation);
  }
  if (error) return Fail(ErrorCode::kIo, folder, ": cannot be looked at: ", error.message());
  if (generations.empty())
    return Fail(ErrorCode::kNotFound, folder, ": expected a folder that `deltafin pack` wrote, got one without ",
                kNameStart, "*", kNameEnd, ": is the drive mounted?");
  std::sort(generations.begin(), generations.end(), std::greater<>());
  if (generations.size() > kMaxManifests) generations.resize(kMaxManifests);
  return generations;
}

class Finder {
 public:
  Result<FoundSets> Find(const std::vector<std::string>& folders) {
    if (folders.empty()) return Fail(ErrorCode::kInvalidArgument, "expert set: expected its folders, got none");
    std::set<std::string> seen;
    for (const std::string& folder : folders) {
      std::error_code ignored;
      if (seen.insert(fs::weakly_canonical(folder, ignored).string()).second)
        Look(folder);
      else
        found_.problems.push_back(folder + ": named twice: counted once");
    }
    if (found_folders_.empty()) return std::move(*first_error_);
    DFIN_TRY(const uint64_t set_id, ChooseSet());
    DFIN_TRY_VOID(Gather(set_id));
    std::stable_sort(
        found_.candidates.begin(), found_.candidates.end(),
        [](const SetCandidate& a, const SetCandidate& b) { return a.manifest.generation > b.manifest.generation; });
    return std::move(found_);
  }

 private:
  void Look(const std::string& folder) {
    Result<std::vector<uint64_t>> generations = ListGenerations(folder);
    if (!generations) return Note(Failure(std::move(generations.error())));
    FolderManifests here{folder, {}};
    for (const uint64_t generation : *generations) {
      Result<ExpertSetManifest> manifest = ReadManifest(folder + "/" + ManifestFileName(generation), generation);
      if (manifest)
        here.manifests.push_back(std::move(*manifest));
      else
        Note(Failure(std::move(manifest.error())));
    }
    if (!here.manifests.empty()) found_folders_.push_back(std::move(here));
  }

  void Note(Failure problem) {
    found_.damaged = found_.damaged || problem.value().code() == ErrorCode::kCorrupt;
    found_.unreachable = found_.unreachable || problem.value().code() == ErrorCode::kIo;
    found_.problems.push_back(problem.value().message());
    if (!first_error_) first_error_ = std::move(problem);
  }

  // The set that most folders hold; a folder that holds only others is refused.
  Result<uint64_t> ChooseSet() const {
    std::map<uint64_t, size_t> holders;
    for (const FolderManifests& here : found_folders_) {
      std::set<uint64_t> ids;
      for (const ExpertSetManifest& manifest : here.manifests) ids.insert(manifest.set_id);
      for (const uint64_t id : ids) ++holders[id];
    }
    const auto most = std::max_element(holders.begin(), holders.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto holds = [&](const FolderManifests& here) {
      return std::any_of(here.manifests.begin(), here.manifests.end(),
                         [&](const ExpertSetManifest& m) { return m.set_id == most->first; });
    };
    const auto good = std::find_if(found_folders_.begin(), found_folders_.end(), holds);
    for (const FolderManifests& here : found_folders_)
      if (!holds(here))
        return Fail(ErrorCode::kInvalidArgument, here.folder, ": expected a folder of expert set ", ToHex(most->first),
                    " as ", good->folder, " is, got one of set ", ToHex(here.manifests[0].set_id),
                    ": name the folders of one set");
    return most->first;
  }

  Status Gather(uint64_t set_id) {
    std::map<std::string, size_t> by_text;  // equal but for this_drive
    for (const FolderManifests& here : found_folders_)
      for (const ExpertSetManifest& manifest : here.manifests) {
        if (manifest.set_id != set_id) continue;
        ExpertSetManifest common = manifest;
        common.this_drive = 0;
        const auto [it, is_new] = by_text.try_emplace(common.ToText(), found_.candidates.size());
        if (is_new) found_.candidates.push_back({common, std::vector<std::string>(common.drives.size())});
        std::string& folder = found_.candidates[it->second].folders[static_cast<size_t>(manifest.this_drive)];
        if (!folder.empty())
          return Fail(ErrorCode::kInvalidArgument, here.folder, ": holds drive ", manifest.this_drive,
                      " of the expert set (generation ", manifest.generation, "), and so does ", folder,
                      ": one is a copy of the other; name one of them");
        folder = here.folder;
      }
    return {};
  }

  FoundSets found_;
  std::vector<FolderManifests> found_folders_;
  std::optional<Failure> first_error_;
};

}  // namespace

Result<FoundSets> FindSets(const std::vector<std::string>& folders) { return Finder().Find(folders); }

}  // namespace deltafin
