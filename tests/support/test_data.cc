#include "support/test_data.h"

#include <cstdlib>
#include <filesystem>

namespace deltafin::test {

namespace fs = std::filesystem;

std::string RepoPath(const std::string& relative) { return std::string(DELTAFIN_SOURCE_DIR) + "/" + relative; }

std::optional<std::string> SharedPath(const std::string& relative) {
  const fs::path path = fs::path(DELTAFIN_SOURCE_DIR).parent_path() / "shared" / relative;
  if (!fs::exists(path)) return std::nullopt;
  return path.string();
}

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "deltafin-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace deltafin::test
