#include "doctor/subject.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/dense_manifest.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/stream_manifest.h"
#include "pack/disk.h"
#include "pack/set_files.h"

namespace deltafin {

namespace fs = std::filesystem;

Subject Subject::Make(const DoctorOptions& options, const Host& host) {
  Subject subject{.options = options,
                  .host = host,
                  .report = {},
                  .report_problem = {},
                  .experts = options.experts,
                  .experts_noted = false,
                  .noted_problem = {},
                  .weights_have_faults = false};
  if (options.model.empty()) return subject;
  if (options.experts.empty()) {
    Result<std::vector<std::string>> noted = FindExpertFolders(options.model, options.state_folder);
    if (!noted) subject.noted_problem = noted.error().message();
    if (noted) subject.experts = std::move(*noted);
    subject.experts_noted = !subject.experts.empty();
  }
  Result<FolderReport> report =
      InspectFolder(options.model, {.folders = subject.experts, .state_folder = options.state_folder});
  if (report)
    subject.report = std::move(*report);
  else
    subject.report_problem = report.error().message();
  return subject;
}

std::vector<NamedFolder> FoldersOf(const Subject& subject) {
  std::vector<NamedFolder> folders;
  if (subject.has_model()) folders.push_back({"model", subject.options.model});
  for (const std::string& folder : subject.experts) folders.push_back({"experts", folder});
  if (!subject.options.dense.empty()) folders.push_back({"dense", subject.options.dense});
  if (!subject.options.state_folder.empty()) folders.push_back({"state", subject.options.state_folder});
  return folders;
}

std::string NearestFolder(const Host& host, const std::string& folder) {
  std::error_code failed;
  fs::path path = fs::absolute(folder, failed);
  while (host.Look(path.string()).kind != PathFacts::Kind::kFolder && path.has_relative_path())
    path = path.parent_path();
  return path.string();
}

std::vector<std::string> FilesOf(const Subject& subject, const NamedFolder& folder) {
  std::vector<std::string> names, shards;
  const auto add_all = [&](std::string_view prefix) {
    for (std::string& name : ListFiles(folder.path, prefix)) names.push_back(std::move(name));
  };
  if (folder.role == "model") {
    for (const char* name : {"config.json", "model.safetensors.index.json", "tiktoken.model", "tokenizer_config.json",
                             "generation_config.json", kExpertPointerName})
      names.push_back(name);
    if (subject.report)
      for (const ShardReport& shard : subject.report->shards) shards.push_back(ShardPath(folder.path, shard.name));
  } else if (folder.role == "experts") {
    add_all(kManifestPrefix);
    add_all(kPiecePrefix);
  } else if (folder.role == "dense") {
    add_all(kDensePrefix);
  }
  std::vector<std::string> files;
  for (const std::string& name : names) files.push_back(folder.path + "/" + name);
  files.insert(files.end(), shards.begin(), shards.end());
  std::erase_if(files,
                [&](const std::string& path) { return subject.host.Look(path).kind == PathFacts::Kind::kAbsent; });
  return files;
}

std::string Quoted(const std::string& path) {
  const bool plain = !path.empty() && std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:,@%").find(c) != std::string_view::npos;
  });
  if (plain) return path;
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace deltafin
