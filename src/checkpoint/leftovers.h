// leftovers: what AtomicFile left behind where a process was killed.
//
// A function without state. Errors are of no interest: another process may be tidying as well.
#pragma once

#include <string>
#include <string_view>

namespace deltafin {

// Removes unfinished files in `folder` whose names begin with `start` and whose process is gone.
void RemoveLeftovers(const std::string& folder, std::string_view start);

}  // namespace deltafin
