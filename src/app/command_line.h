// command_line.h: all commands together, as main() and the tests declare them.
//
// What holds for every command is added here: empty values are refused, values that are one of a few words are declared
// as such, models that come with the program are found by name, help is laid out. Thread rule: main thread.
#pragma once

#include <string>
#include <vector>

#include "app/commands.h"

namespace deltafin {

// `root` outlives what is returned.
std::vector<Command> AddCommands(CLI::App& root);

}  // namespace deltafin
