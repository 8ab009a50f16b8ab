// cmd_bench_cache.h: `deltafin bench cache`, a part of `deltafin bench`: what caches of other sizes would have read.
//
// Adds itself to `bench` and returns what runs when it was chosen; errors as in commands.h. Opens no model and reads
// nothing but the trace.
#pragma once

#include "app/commands.h"

namespace deltafin {

Command AddBenchCache(CLI::App& bench);

}  // namespace deltafin
