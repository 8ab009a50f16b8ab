// hub_listing: what a hub says about a repository: its commit, its files with sizes and checksums. Parsed and checked.
//
// The text comes from the network and is trusted in nothing: a name that could lead out of the target folder, or mean
// two things on some file system, refuses the whole list. Pure functions; thread-safe. Errors: kCorrupt.
// Source: the public HTTP API of Hugging Face: /api/models/REPO/revision/REV and /api/models/REPO/tree/REV.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deltafin {

struct HubFile {
  std::string path;  // relative, with '/'
  uint64_t size = 0;
  std::string sha256;    // 64 hexadecimal digits; of files in large file storage
  std::string git_sha1;  // 40; of "blob SIZE\0" and the contents; of the others
  bool operator==(const HubFile&) const = default;
};

struct HubListing {
  std::string commit;
  std::vector<HubFile> files;  // sorted by path
  uint64_t total_bytes = 0;
};

inline constexpr size_t kMostHubFiles = 100'000;
inline constexpr uint64_t kMostHubFileBytes = uint64_t{1} << 50;

// The commit that a revision means: the "sha" of the answer.
Result<std::string> ParseRevision(std::string_view text);
// Adds the files of one page of a tree; folders are left out.
Status ParseTreePage(std::string_view text, std::vector<HubFile>& files);
// Sorts, and checks what concerns all files: no name twice (whatever the case), none both file and folder.
Result<HubListing> MakeListing(std::string commit, std::vector<HubFile> files);
// That `path` names a file below the folder it is applied to, on every file system.
Status CheckHubPath(std::string_view path);
bool IsCommit(std::string_view text);  // 40 or 64 hexadecimal digits

// The URL that a Link header calls "next"; "" without one.
std::string NextLink(std::string_view link_header);

}  // namespace deltafin
