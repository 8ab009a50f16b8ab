// The file that says which folders hold the experts of a model: see ExpertSetPointer.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/expert_set.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFormat = "deltafin-expert-folders";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMaxBytes = uint64_t{1} << 20;
constexpr size_t kMaxFolders = 64;

// One name for a folder, however it is spelled.
std::string Canonical(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(folder, error);
  return error ? folder : path.string();
}

std::string PathInState(const std::string& model_folder, const std::string& state_folder) {
  return state_folder + "/experts-" + ToHex(Hash64(Canonical(model_folder))) + ".json";
}

std::string ToText(const std::string& model_folder, const ExpertSetPointer& pointer) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["set_id"] = ToHex(pointer.set_id);
  json["model"] = Canonical(model_folder);
  json["folders"] = pointer.folders;
  return DumpJson(json) + "\n";
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

}  // namespace

Result<ExpertSetPointer> ParseExpertPointer(std::string_view text, const std::string& what) {
  const auto corrupt = [&](std::string_view expected) {
    return Fail(ErrorCode::kCorrupt, what, ": expected ", expected, ", got something else: delete it and name the ",
                "folders with --experts");
  };
  DFIN_TRY(const Json json, ParseJson(text, what));
  if (!json.is_object()) return corrupt("a JSON object");
  const auto text_of = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  if (text_of("format") != kFormat) return corrupt(Cat("format '", kFormat, "'"));
  const auto version = json.find("version");
  if (version == json.end() || !version->is_number_unsigned()) return corrupt("a version");
  if (version->get<uint64_t>() != kVersion)
    return Fail(ErrorCode::kUnsupported, what, ": version: expected ", kVersion, ", got ", version->get<uint64_t>(),
                ": written by a newer deltafin; use that one");
  ExpertSetPointer pointer;
  const std::optional<uint64_t> set_id = FromHex(text_of("set_id"));
  if (!set_id) return corrupt("set_id of 16 hexadecimal digits");
  pointer.set_id = *set_id;
  const auto folders = json.find("folders");
  if (folders == json.end() || !folders->is_array() || folders->empty() || folders->size() > kMaxFolders)
    return corrupt(Cat("folders, a list of 1 to ", kMaxFolders));
  for (const Json& folder : *folders) {
    if (!folder.is_string() || !fs::path(folder.get<std::string>()).is_absolute())
      return corrupt("folders with absolute paths");
    pointer.folders.push_back(folder.get<std::string>());
  }
  return pointer;
}

Result<std::optional<ExpertSetPointer>> FindExpertPointer(const std::string& model_folder,
                                                          const std::string& state_folder) {
  std::vector<std::string> paths = {model_folder + "/" + kExpertPointerName};
  if (!state_folder.empty()) paths.push_back(PathInState(model_folder, state_folder));
  for (const std::string& path : paths) {
    Result<std::string> text = ReadWholeFile(path, kMaxBytes);
    if (!text && text.error().code() == ErrorCode::kNotFound) continue;
    if (!text) return Fail(ErrorCode::kCorrupt, path, ": cannot be read: ", text.error().message());
    DFIN_TRY(ExpertSetPointer pointer, ParseExpertPointer(*text, path));
    return std::optional(std::move(pointer));
  }
  return std::optional<ExpertSetPointer>();
}

Result<std::vector<std::string>> FindExpertFolders(const std::string& model_folder, const std::string& state_folder) {
  DFIN_TRY(std::optional<ExpertSetPointer> pointer, FindExpertPointer(model_folder, state_folder));
  return pointer ? std::move(pointer->folders) : std::vector<std::string>();
}

Result<std::string> WriteExpertPointer(const std::string& model_folder, const std::string& state_folder,
                                       const ExpertSetPointer& pointer) {
  DFIN_CHECK(!pointer.folders.empty() && pointer.folders.size() <= kMaxFolders, "a set has folders");
  const std::string text = ToText(model_folder, pointer);
  const Bytes bytes = std::as_bytes(std::span(text));
  const std::string in_model = model_folder + "/" + kExpertPointerName;
  const std::string in_state = state_folder.empty() ? "" : PathInState(model_folder, state_folder);
  Status written = WriteFileAtomically(in_model, bytes);
  if (written) {
    // Nothing older may be found when this one is removed.
    if (!in_state.empty()) unlink(in_state.c_str());
    return in_model;
  }
  if (in_state.empty()) return Failure(std::move(written.error()));
  // An older one in the model folder would be found first.
  if (Exists(in_model)) return FailWith(std::move(written), "an older file is in the way");
  std::error_code error;
  fs::create_directories(state_folder, error);
  if (error) return Fail(ErrorCode::kIo, state_folder, ": cannot make this folder: ", error.message());
  DFIN_TRY_VOID(WriteFileAtomically(in_state, bytes));
  return in_state;
}

}  // namespace deltafin
