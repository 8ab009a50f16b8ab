// cmd_help.h: `deltafin help`. See commands.h.
#pragma once

#include "app/commands.h"

namespace deltafin {

Command AddHelp(CLI::App& root);

}  // namespace deltafin
