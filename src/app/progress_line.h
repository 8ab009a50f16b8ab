// progress_line: one line of progress that fits: what matters most first, the name of what is worked on last and
// shortened first.
//
// Pure functions. ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace deltafin {

// `parts`, the most important one first, then `doing` and `name`, two spaces between them: as many as `width` columns
// hold. The name loses its beginning (the numbers of shards are at the end), then falls away; then the last parts do.
std::string ProgressLine(const std::vector<std::string>& parts, const std::string& doing, const std::string& name,
                         size_t width);

}  // namespace deltafin
