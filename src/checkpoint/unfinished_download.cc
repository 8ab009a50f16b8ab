#include "checkpoint/unfinished_download.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/model_files.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "deltafin-setup ";
constexpr size_t kMostLine = 64 * 1024;

// Where the journal says that the files come from: an option of setup with its value; "" when it says nothing.
std::string SourceOption(const std::string& journal) {
  std::ifstream in(journal, std::ios::binary);
  std::string text(kMostLine, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  const size_t begin = text.find('{'), end = text.find('\n');
  if (!text.starts_with(kMark) || end == std::string::npos || begin > end) return "";
  const size_t last = text.rfind('}', end);
  if (last == std::string::npos || last < begin) return "";
  const Result<Json> header = ParseJson(text.substr(begin, last + 1 - begin), journal);
  if (!header || !header->is_object() || !header->contains("source") || !(*header)["source"].is_object()) return "";
  const Json& source = (*header)["source"];
  const auto text_of = [&](const char* key) {
    return source.contains(key) && source[key].is_string() ? source[key].get<std::string>() : std::string();
  };
  if (const std::string repo = text_of("repo"); !repo.empty()) {
    const std::string revision = text_of("revision");
    return Cat("--repo ", repo, revision.empty() || revision == "main" ? "" : " --revision ",
               revision == "main" ? "" : revision);
  }
  const std::string from = text_of("folder");
  return from.empty() ? "" : Cat("--from-folder ", from);
}

bool HasPartialFile(const std::string& folder) {
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".part") return true;
  return false;
}

}  // namespace

std::string UnfinishedDownload(const std::string& folder) {
  std::error_code ignored;
  const std::string journal = Cat(folder, "/", kSetupJournalName);
  if (!fs::is_regular_file(journal, ignored)) return "";
  const std::string source = SourceOption(journal);
  if (source.empty()) return "";
  std::string count;
  const Result<std::optional<ModelFiles>> list = KnownModelFiles(folder);
  if (list && *list && !(*list)->repository.empty()) {
    const auto& files = (*list)->files;
    const auto there = std::count_if(files.begin(), files.end(), [&](const ModelFile& file) {
      return fs::exists(Cat(folder, "/", file.name), ignored);
    });
    if (there == static_cast<int64_t>(files.size())) return "";
    count = Cat(": ", there, " of ", files.size(), " files");
  } else if (!HasPartialFile(folder)) {
    return "";
  }
  return Cat(folder, ": an unfinished download", count, ": go on with `deltafin setup ", source, " --to ", folder, "`");
}

}  // namespace deltafin
