#include "app/version.h"

#include <sstream>

#include "text/unicode_classes.h"

namespace deltafin {

std::string ProgramVersion() { return DELTAFIN_VERSION; }

std::string VersionText() {
  return std::string("deltafin ") + DELTAFIN_VERSION + "\ntokenizer classes: " + UnicodeVersion();
}

std::vector<std::string> ProgramVersions() {
  std::vector<std::string> versions = {std::string("deltafin ") + DELTAFIN_VERSION,
                                       std::string("built with ") + DELTAFIN_COMPILER,
                                       "tokenizer classes: " + UnicodeVersion()};
  std::istringstream libraries(DELTAFIN_LIBRARIES);
  for (std::string library; std::getline(libraries, library, ',');) versions.push_back(library);
  return versions;
}

}  // namespace deltafin
