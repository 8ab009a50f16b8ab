#include "checkpoint/stream_manifest.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "checkpoint/integrity.h"
#include "checkpoint/manifest_text.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

constexpr ManifestKind kKind = {"deltafin-stream", 1};
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxText = 1024;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 44;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Status CheckFiles(const StreamManifest& manifest, const std::string& what) {
  std::set<std::string_view> names;
  for (const StreamFile& file : manifest.files) {
    const bool has_sha256 = IsHex(file.sha256, 64) && file.git_sha1.empty();
    if (!has_sha256 && !(file.sha256.empty() && IsHex(file.git_sha1, 40)))
      return Fail(ErrorCode::kCorrupt, what, ": ", file.name,
                  ": expected sha256 of 64 hexadecimal digits, or git_sha1 of 40, got neither, or both");
    if (!file.name.ends_with(".safetensors"))
      return Fail(ErrorCode::kCorrupt, what, ": ", file.name, ": expected the name of a shard, *.safetensors");
    if (!names.insert(file.name).second)
      return Fail(ErrorCode::kCorrupt, what, ": ", file.name, ": expected each file once, got it twice");
  }
  return {};
}

}  // namespace

uint64_t StreamManifest::Id() const {
  uint64_t hash = Hash64(Cat(repository, "\n", commit));
  for (const StreamFile& file : files)
    hash = Hash64(Cat(file.name, "\n", file.bytes, "\n", file.sha256, file.git_sha1), hash);
  return hash == 0 ? 1 : hash;
}

int32_t StreamManifest::Find(std::string_view name) const {
  const auto it = std::find_if(files.begin(), files.end(), [&](const StreamFile& f) { return f.name == name; });
  return it == files.end() ? -1 : static_cast<int32_t>(it - files.begin());
}

std::string StreamManifest::ToText() const {
  Json list = Json::array();
  for (const StreamFile& file : files)
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}, {"git_sha1", file.git_sha1}});
  Json json;
  json["format"] = kKind.format;
  json["version"] = kKind.version;
  json["endpoint"] = endpoint;
  json["repository"] = repository;
  json["revision"] = revision;
  json["commit"] = commit;
  json["dense_complete"] = dense_complete;
  json["files"] = std::move(list);
  return ManifestText(json);
}

Result<StreamManifest> StreamManifest::FromText(std::string_view text, const std::string& what) {
  if (text.size() > kMaxStreamManifestBytes)
    return Fail(ErrorCode::kCorrupt, what, ": expected at most ", kMaxStreamManifestBytes, " bytes, got ", text.size());
  DFIN_TRY(const Json json, ParseManifest(text, kKind, what));
  ManifestReader in(json, what, "");
  StreamManifest m;
  m.endpoint = in.Text("endpoint", kMaxText);
  m.repository = in.Text("repository", kMaxText);
  m.revision = in.Text("revision", kMaxText);
  m.commit = in.Text("commit", kMaxText);
  m.dense_complete = in.Flag("dense_complete");
  in.List("files", 1, kMaxFiles, [&](ManifestReader& from) {
    StreamFile file;
    file.name = from.FileName("name");
    file.bytes = from.Number("bytes", 1, kMaxFileBytes);
    file.sha256 = from.Text("sha256", 64);
    file.git_sha1 = from.Text("git_sha1", 40);
    m.files.push_back(std::move(file));
  });
  DFIN_TRY_VOID(in.TakeStatus());
  DFIN_TRY_VOID(CheckFiles(m, what));
  return m;
}

bool IsStreamedFolder(const std::string& folder) { return Exists(Cat(folder, "/", kStreamManifestName)); }

Result<StreamManifest> ReadStreamManifest(const std::string& folder) {
  const std::string path = Cat(folder, "/", kStreamManifestName);
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxStreamManifestBytes));
  return StreamManifest::FromText(text, path);
}

std::string ShardPath(const std::string& folder, const std::string& name) {
  std::string whole = Cat(folder, "/", name);
  std::string partial = Cat(folder, "/", kPartialFolder, "/", name);
  return !Exists(whole) && IsStreamedFolder(folder) && Exists(partial) ? partial : whole;
}

}  // namespace deltafin
