// version.h: what --version prints: the program, how it was built, and the Unicode tables behind the tokenizer.
#pragma once

#include <string>

namespace deltafin {

std::string VersionText();

}  // namespace deltafin
