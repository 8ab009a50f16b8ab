// cmd_bench_run.h: two commands of bench: run, cold runs by a fixed protocol, and compare, two results of it.
//
// Declarations only; see commands.h.
#pragma once

#include "app/commands.h"

namespace deltafin {

Command AddBenchRun(CLI::App& bench);
Command AddBenchCompare(CLI::App& bench);

}  // namespace deltafin
