// The io_uring engine: reads are handed to the kernel in batches and reaped from its completion ring. Linux only; on
// other systems uring_engine_none.cc is linked and the factory answers kUnavailable.
//
// Where the kernel refuses to go on (an io_uring_enter error other than a passing one), reads that it has not taken end
// with kIo, as do all later ones; those that it has taken are awaited, looking every millisecond.
//
// Submit() only fills the submission ring; the next Wait() gives all of it to the kernel in one call.
// Thread rule: as IoEngine. No allocation after creation unless a read fails.
#pragma once

#include <memory>

#include "io/io_engine.h"

namespace deltafin {

// `depth` >= 1. kUnavailable with the reason, and the setting that helps, where the kernel refuses.
Result<std::unique_ptr<IoEngine>> CreateUringEngine(int depth);

}  // namespace deltafin
