#include "app/version.h"

#include <sstream>
#include <string_view>

#include "text/unicode_classes.h"

namespace deltafin {

std::string ProgramVersion() { return DELTAFIN_VERSION; }

std::string VersionText() {
  std::string libraries;
  for (const char c : std::string_view(DELTAFIN_LIBRARIES))
    libraries += c == ',' ? std::string(", ") : std::string(1, c);
  return std::string("deltafin ") + DELTAFIN_VERSION + "\ntokenizer classes: " + UnicodeVersion() +
         "\nlibraries: " + libraries;
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
