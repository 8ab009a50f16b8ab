// bundled_model.h: where the small models lie that come with the program.
//
// Beside an installed program: share/deltafin/models of the same prefix; in a source tree: models/ above the build
// folder. A function without state; reads no model. "" when it is not found.
#pragma once

#include <string>
#include <string_view>

namespace deltafin {

// `name`: "k3-nano".
std::string FindBundledModel(std::string_view name);

}  // namespace deltafin
