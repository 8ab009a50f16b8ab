// plan_machine: this machine as `deltafin plan` sees it: drives as `deltafin drives` measured them, memory that may be
// used, and two short measurements of the processor.
//
// Takes about two seconds. Reads the state folder, writes nothing. Errors: kIo (no drive was measured);
// kInvalidArgument; kOutOfMemory.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "simulate/machine.h"

namespace deltafin {

// `state_dir` "": the usual one. What was found is added to `notes`.
Result<simulate::Machine> MeasureThisMachine(const std::string& state_dir, std::vector<std::string>& notes);

}  // namespace deltafin
