// wrapped_text.h: text in lines of a given width, broken between words.
//
// Pure functions; a word that is too long has a line of its own. Widths count characters, wide scripts as one.
#pragma once

#include <string>
#include <string_view>

namespace deltafin {

// Line ends in `text` stay. `width` 0: no limit. Lines after the first of each begin with `indent` spaces.
std::string Wrapped(std::string_view text, size_t width, size_t indent = 0);

}  // namespace deltafin
