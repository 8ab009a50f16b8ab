// version.h: what --version prints.
//
// The program's version, and the Unicode tables behind the tokenizer, which decide ids and come from the system's ICU.
// A pure function.
#pragma once

#include <string>
#include <vector>

namespace deltafin {

// "0.1.0".
std::string ProgramVersion();
std::string VersionText();
// The program and what it was built from: "deltafin 0.1.0", "liburing 2.3".
std::vector<std::string> ProgramVersions();

}  // namespace deltafin
