// Fuzzes what is parsed of a hub's answers: revision, pages of the file list, Link headers. What is accepted has names
// that stay in the folder, whole checksums, and each name once.
#include <set>

#include "require.h"
#include "setup/hub_listing.h"

using namespace deltafin;
using fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto commit = ParseRevision(text)) Require(IsCommit(*commit));
  Require(NextLink(text).find('>') == std::string::npos);
  std::vector<HubFile> files;
  if (!ParseTreePage(text, files)) return 0;
  for (const HubFile& file : files) {
    Require(CheckHubPath(file.path).has_value() && file.path.front() != '/');
    Require(("/" + file.path + "/").find("/../") == std::string::npos);
    Require((file.sha256.size() == 64) != (file.git_sha1.size() == 40));
    Require(file.size <= kMostHubFileBytes);
  }
  const auto listing = MakeListing("c", files);
  if (!listing) return 0;
  std::set<std::string> names;
  for (const HubFile& file : listing->files) Require(names.insert(file.path).second);
  return 0;
}
