// The pread engine: a pool of threads that each make one positioned read at a time. Works on every system.
//
// Slower than io_uring only where many small reads are in flight. Every read in flight has a thread, so that hung ones
// hold up nobody. Thread rule: as IoEngine.
#pragma once

#include <memory>

#include "io/io_engine.h"

namespace deltafin {

// `depth` >= 1; at most 128 are in flight.
std::unique_ptr<IoEngine> CreatePreadEngine(int depth);

}  // namespace deltafin
