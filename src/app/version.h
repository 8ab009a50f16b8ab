// version.h: what --version prints.
//
// The program's version, and the Unicode tables behind the tokenizer, which decide ids and come from the system's ICU.
// A pure function.
#pragma once

#include <string>

namespace deltafin {

std::string VersionText();

}  // namespace deltafin
