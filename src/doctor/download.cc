#include "doctor/download.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "pack/disk.h"
#include "setup/hub_client.h"
#include "setup/setup_journal.h"

namespace deltafin {
namespace {

constexpr const char* kPartSuffix = ".part";

struct Source {
  std::string repository, revision, endpoint, folder;
  bool dense_only = false;
};

std::string Text(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

std::optional<Source> SourceOf(const Subject& subject) {
  if (subject.report && subject.report->stream) {
    const StreamReport& stream = *subject.report->stream;
    return Source{stream.repository, "", stream.endpoint, "", !stream.dense_complete};
  }
  const auto journal = SetupJournal::Read(subject.options.model);
  if (!journal || !*journal) return std::nullopt;
  const Result<Json> header = ParseJson((*journal)->header, kSetupJournalName);
  if (!header || !header->is_object() || !header->contains("source") || !(*header)["source"].is_object())
    return std::nullopt;
  const Json& from = (*header)["source"];
  Source source{Text(from, "repo"), Text(from, "revision"), "", Text(from, "folder"), false};
  return source.repository.empty() && source.folder.empty() ? std::nullopt : std::optional(std::move(source));
}

std::string CommandOf(const Source& source, const std::string& to) {
  if (!source.folder.empty()) return Cat("deltafin setup --from-folder ", Quoted(source.folder), " --to ", Quoted(to));
  std::string command =
      Cat("deltafin setup ", source.dense_only ? "--dense-only " : "", "--repo ", Quoted(source.repository));
  if (!source.revision.empty() && source.revision != "main") command += Cat(" --revision ", Quoted(source.revision));
  if (!source.endpoint.empty() && source.endpoint != HubOptions{}.endpoint)
    command += Cat(" --endpoint ", Quoted(source.endpoint));
  return command + Cat(" --to ", Quoted(to));
}

}  // namespace

std::string KnownSetupCommand(const Subject& subject) {
  const std::optional<Source> source = SourceOf(subject);
  return source ? CommandOf(*source, subject.options.model) : "";
}

Remedy FetchMissing(const Subject& subject) {
  if (std::string command = KnownSetupCommand(subject); !command.empty())
    return ByCommand(std::move(command), "it keeps what is there; give the --pack-to folders too, if there were any");
  return ByAdvice(Cat("deltafin setup --repo OWNER/NAME --to ", Quoted(subject.options.model),
                      " fetches what is missing and keeps what is there and right"));
}

Remedy FetchAgain(const Subject& subject, const std::string& path) {
  if (const std::string command = KnownSetupCommand(subject); !command.empty())
    return ByCommand(Cat("rm ", Quoted(path), " && ", command));
  return ByAdvice(
      Cat("remove it and fetch it again: deltafin setup --repo OWNER/NAME --to ", Quoted(subject.options.model)));
}

std::optional<std::string> UnfinishedDownload(const Subject& subject) {
  if (!subject.report) return std::nullopt;
  const FolderReport& report = *subject.report;
  const std::optional<Source> source = SourceOf(subject);
  if (report.stream && !report.stream->dense_complete)
    return Cat(report.folder, ": unfinished download of the dense part of ", report.stream->repository);
  if (report.stream || subject.host.Look(report.folder + "/" + kSetupJournalName).kind == PathFacts::Kind::kAbsent)
    return std::nullopt;
  int64_t partial = 0;
  for (const std::string& name : ListFiles(report.folder, "")) partial += name.ends_with(kPartSuffix) ? 1 : 0;
  if (partial == 0 && report.complete) return std::nullopt;
  int64_t there = report.spec ? 1 : 0, expected = 1;
  const auto count = [&](bool present) {
    ++expected;
    there += present ? 1 : 0;
  };
  for (const FileReport& file : report.tokenizer_files) count(file.present);
  if (report.has_index || !report.shards.empty()) count(report.has_index);
  for (const ShardReport& shard : report.shards) count(shard.present);
  // Nothing lacks that a run needs, and nothing is half there: other files of the repository do not matter.
  if (partial == 0 && there == expected) return std::nullopt;
  return Cat(report.folder, ": unfinished download", source ? " of " : "",
             source ? (source->folder.empty() ? source->repository : source->folder) : "", ", ", there, " of ",
             report.shards.empty() ? "an unknown number of" : Cat(expected), " files",
             partial > 0 ? Cat(", ", partial, " partly") : "");
}

}  // namespace deltafin
