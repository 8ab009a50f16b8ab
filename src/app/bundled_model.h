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
// What --model and --draft-model mean: a folder, or where there is none of that name the model that came with the
// program ("k3-nano").
std::string ModelFolder(const std::string& name);

}  // namespace deltafin
