// shell_completion.h: scripts that make a shell complete deltafin's commands, options and values.
//
// Pure functions of the command table. Values that are folders or files complete as such, a few words as these words,
// others not at all.
#pragma once

#include <span>
#include <string>

#include "app/command_table.h"

namespace deltafin {

std::string BashCompletion(std::span<const CommandRow> commands);
std::string ZshCompletion(std::span<const CommandRow> commands);
std::string FishCompletion(std::span<const CommandRow> commands);

}  // namespace deltafin
