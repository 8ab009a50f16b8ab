// count_allocations.h: how often operator new was called, by any thread, in a test program that links this file.
//
// The program's operator new is replaced. Thread-safe.
#pragma once

#include <cstdint>

namespace deltafin::test {

// Since the program started.
int64_t Allocations();

}  // namespace deltafin::test
