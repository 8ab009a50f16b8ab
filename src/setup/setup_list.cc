// SetupRun: the list of checksums that stays in the folder (checkpoint/model_files.h), and what an earlier one says.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/model_files.h"
#include "setup/setup_run.h"

namespace deltafin {

// A folder lists no checksums: those of files that were copied and compared before are in our own list. A damaged list
// says nothing; it is written anew.
void SetupRun::TakeKnownChecksums() {
  const Result<std::optional<ModelFiles>> known = KnownModelFiles(options_.to);
  for (SetupFile& file : files_) {
    if (file.has_checksum() || !file.there()) continue;
    const ModelFile* const listed = known && *known ? (*known)->Find(file.file.path) : nullptr;
    if (listed != nullptr && listed->bytes == file.file.size) file.file.sha256 = listed->sha256;
    if (file.file.sha256.empty() && file.state == SetupFile::State::kThere) file.state = SetupFile::State::kUnchecked;
  }
}

// Of all files whose checksums are known by now.
Status SetupRun::KeepList() {
  ModelFiles list;
  const Json identity = source_.Identity();
  if (identity.contains("repo")) {
    list.repository = identity["repo"].get<std::string>();
    list.commit = listing_.commit;
  }
  for (const SetupFile& file : files_)
    if (file.has_checksum())
      list.files.push_back({file.file.path, file.file.size, file.file.sha256, file.file.git_sha1});
  std::sort(list.files.begin(), list.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const std::string path = Cat(options_.to, "/", kModelFilesName), text = list.ToText();
  if (const Result<std::string> there = ReadWholeFile(path, kMaxModelFilesBytes); there && *there == text) return {};
  return PublishFile(options_.hook, path, std::as_bytes(std::span(text)));
}

}  // namespace deltafin
