#include "app/bundled_model.h"

#include <filesystem>
#include <vector>

namespace deltafin {

namespace fs = std::filesystem;

std::string FindBundledModel(std::string_view name) {
  std::error_code failed;
  std::vector<fs::path> parents;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", failed); !failed) {
    const fs::path folder = program.parent_path();
    parents.push_back(folder.parent_path() / "share/deltafin/models");
    // build/release/deltafin, build/deltafin
    parents.push_back(folder.parent_path().parent_path() / "models");
    parents.push_back(folder.parent_path() / "models");
  }
  parents.emplace_back(DELTAFIN_MODELS_DIR);
  for (const fs::path& parent : parents)
    if (const fs::path model = parent / name; fs::exists(model / "config.json", failed)) return model.string();
  return "";
}

std::string ModelFolder(const std::string& name) {
  std::error_code failed;
  if (name.empty() || name.find('/') != std::string::npos || fs::exists(name, failed)) return name;
  const std::string bundled = FindBundledModel(name);
  return bundled.empty() ? name : bundled;
}

}  // namespace deltafin
