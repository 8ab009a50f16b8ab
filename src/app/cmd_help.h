// cmd_help.h: `deltafin help [COMMAND]`, beside the commands of commands.h.
//
// Prints what COMMAND --help prints; a word that is no command is refused with the nearest one. Thread rule: main
// thread. Errors: kInvalidArgument, kIo.
#pragma once

#include "app/commands.h"

namespace deltafin {

Command AddHelp(CLI::App& root);

}  // namespace deltafin
