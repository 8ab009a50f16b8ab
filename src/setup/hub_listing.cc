#include "setup/hub_listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"

namespace deltafin {
namespace {

constexpr size_t kMostPathBytes = 1000, kMostNameBytes = 240;  // room for what is added to names of partial files
constexpr std::string_view kFileList = "file list";

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string Lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string Quoted(std::string_view path) { return DumpJson(Json(std::string(path.substr(0, 200)))); }

// A member that is a string; "" when it is absent or something else.
std::string Text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

Result<uint64_t> Size(const Json& object, const std::string& path) {
  const auto it = object.find("size");
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() > kMostHubFileBytes)
    return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(path), ": expected a size from 0 to ", kMostHubFileBytes,
                " bytes, got ", it == object.end() ? "none" : DumpJson(*it).substr(0, 60));
  return it->get<uint64_t>();
}

Result<HubFile> ParseFile(const Json& entry) {
  HubFile file;
  file.path = Text(entry, "path");
  DFIN_TRY_VOID(CheckHubPath(file.path));
  DFIN_TRY(file.size, Size(entry, file.path));
  const auto lfs = entry.find("lfs");
  if (lfs == entry.end() || !lfs->is_object()) {
    file.git_sha1 = Text(entry, "oid");
    if (!IsHex(file.git_sha1, 40))
      return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(file.path),
                  ": expected an oid of 40 hexadecimal digits");
    return file;
  }
  file.sha256 = Text(*lfs, lfs->contains("oid") ? "oid" : "sha256");
  DFIN_TRY(const uint64_t size, Size(*lfs, file.path));
  if (!IsHex(file.sha256, 64))
    return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(file.path),
                ": expected a sha256 of 64 hexadecimal digits in lfs");
  if (size != file.size)
    return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(file.path), ": two sizes: ", file.size, " and ", size);
  return file;
}

}  // namespace

bool IsCommit(std::string_view text) { return IsHex(text, 40) || IsHex(text, 64); }

Status CheckHubPath(std::string_view path) {
  const auto refuse = [&](std::string_view what) {
    return Fail(ErrorCode::kCorrupt, kFileList, ": expected names of files inside the repository, got ", Quoted(path),
                " (", what, "): nothing was written under that name");
  };
  if (path.empty() || path.size() > kMostPathBytes) return refuse("empty or too long");
  for (const char c : path)
    if (c < ' ' || c > '~' || std::string_view("\\:*?\"<>|").find(c) != std::string_view::npos)
      return refuse("a character that not every file system takes");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return refuse("a path that is absolute or leads elsewhere");
    if (part.size() > kMostNameBytes) return refuse("a part that is too long");
    if (part.front() == ' ' || part.back() == ' ' || part.back() == '.') return refuse("a part that ends oddly");
    if (part.ends_with(".part") || part.find(".part-") != std::string_view::npos)
      return refuse("the name of a partial file");
    at = end + 1;
  }
  return {};
}

Result<std::string> ParseRevision(std::string_view text) {
  DFIN_TRY(const Json json, ParseJson(text, "revision"));
  const std::string commit = json.is_object() ? Text(json, "sha") : "";
  if (!IsCommit(commit))
    return Fail(ErrorCode::kCorrupt, "revision: expected an object with a commit as \"sha\", got ",
                DumpJson(json).substr(0, 80));
  return commit;
}

Status ParseTreePage(std::string_view text, std::vector<HubFile>& files) {
  DFIN_TRY(const Json json, ParseJson(text, kFileList));
  if (!json.is_array())
    return Fail(ErrorCode::kCorrupt, kFileList, ": expected a list, got ", DumpJson(json).substr(0, 80));
  for (const Json& entry : json) {
    if (!entry.is_object())
      return Fail(ErrorCode::kCorrupt, kFileList, ": expected objects, got ", DumpJson(entry).substr(0, 80));
    const std::string type = Text(entry, "type");
    if (type == "directory") continue;
    if (type != "file")
      return Fail(ErrorCode::kCorrupt, kFileList, ": expected entries of type file or directory, got ", Quoted(type));
    if (files.size() >= kMostHubFiles)
      return Fail(ErrorCode::kCorrupt, kFileList, ": expected at most ", kMostHubFiles, " files, got more");
    DFIN_TRY(HubFile file, ParseFile(entry));
    files.push_back(std::move(file));
  }
  return {};
}

Result<HubListing> MakeListing(std::string commit, std::vector<HubFile> files) {
  HubListing listing;
  listing.commit = std::move(commit);
  listing.files = std::move(files);
  std::sort(listing.files.begin(), listing.files.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  std::set<std::string> names, folders;
  for (const HubFile& file : listing.files) {
    const std::string name = Lower(file.path);
    if (!names.insert(name).second)
      return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(file.path),
                  ": two files of this name, or of names that differ in case only");
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      folders.insert(name.substr(0, slash));
    listing.total_bytes += file.size;
    if (listing.total_bytes > kMostHubFileBytes)
      return Fail(ErrorCode::kCorrupt, kFileList, ": expected at most ", kMostHubFileBytes, " bytes in all, got more");
  }
  for (const std::string& folder : folders)
    if (names.contains(folder))
      return Fail(ErrorCode::kCorrupt, kFileList, ": ", Quoted(folder), ": both a file and a folder");
  return listing;
}

std::string NextLink(std::string_view header) {
  while (!header.empty()) {
    const size_t open = header.find('<'), close = header.find('>');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "";
    const size_t end = std::min(header.find('<', close), header.size());
    const std::string_view parameters = header.substr(close + 1, end - close - 1);
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos)
      return std::string(header.substr(open + 1, close - open - 1));
    header.remove_prefix(end);
  }
  return "";
}

}  // namespace deltafin
