// build_description.h: which commit this program was built from, by what compiler and how.
//
// The commit is found when the program is built (cmake/write_commit.cmake). Constants; any thread.
#pragma once

#include "bench/machine_description.h"

namespace deltafin {

const char* BuildCommit();  // "1a2b3c4d5e6f", with "+" when files differed from it; "unknown" outside a checkout
ProgramDescription DescribeProgram();

}  // namespace deltafin
