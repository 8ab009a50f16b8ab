// ModelFiles: what the files of a model folder should be: names, sizes and the checksums that their source lists.
//
// From deltafin-files.txt, which setup leaves in the folder, or from the links of a hub's cache, whose blobs are named
// by their checksums. Nothing is hashed here (pack/model_file_check.h does). Parsing is a pure function of hostile
// bytes: a name that could lead out of the folder refuses the whole list. Functions without state. Errors: kCorrupt,
// kUnsupported (a newer version), kIo. Layout: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

inline constexpr const char* kModelFilesName = "deltafin-files.txt";
inline constexpr uint64_t kMaxModelFilesBytes = uint64_t{64} << 20;

struct ModelFile {
  std::string name;  // relative to the folder, with '/'
  uint64_t bytes = 0;
  std::string sha256;    // 64 hexadecimal digits, or
  std::string git_sha1;  // 40: of "blob SIZE\0" and the contents
  bool operator==(const ModelFile&) const = default;
};

struct ModelFiles {
  std::string repository;        // "OWNER/NAME"; "": of a folder, or not known
  std::string commit;            // "": not known
  std::vector<ModelFile> files;  // ascending by name
  bool operator==(const ModelFiles&) const = default;

  const ModelFile* Find(std::string_view name) const;
  std::string ToText() const;
  static Result<ModelFiles> FromText(std::string_view text, const std::string& what);
};

// What is known of `folder`; empty when nothing is.
Result<std::optional<ModelFiles>> KnownModelFiles(const std::string& folder);
Status WriteModelFiles(const std::string& folder, const ModelFiles& files);

}  // namespace deltafin
