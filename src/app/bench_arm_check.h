// bench_arm_check: whether every arm of bench run would start, before the first run: its devices, files and options,
// and a memory plan with room for the prompts.
//
// Opens the engine of each arm as a run does, and stops before weights are read. Thread rule: main thread. Errors:
// those of Engine::Create, naming the arm.
#pragma once

#include <vector>

#include "app/bench_arms.h"
#include "app/interrupt.h"

namespace deltafin {

Status CheckArmsOpen(const BenchArms& arms, const std::vector<BenchPrompt>& prompts, const Interrupt& interrupt);

}  // namespace deltafin
