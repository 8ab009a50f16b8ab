// require.h: a promise of what is fuzzed; one that is broken ends the program, which the fuzzer then reports.
#pragma once

#include <cstdlib>

namespace deltafin::fuzz {

inline void Require(bool promise) {
  if (!promise) std::abort();
}

}  // namespace deltafin::fuzz
