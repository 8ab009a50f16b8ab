// man_page.h: deltafin(1), in troff: every command and option of the command table, exit codes, files.
//
// A pure function. What a command does in detail is in docs/; here stands what --help says.
#pragma once

#include <span>
#include <string>

#include "app/command_table.h"

namespace deltafin {

// `version`: "0.1.0".
std::string ManPage(std::span<const CommandRow> commands, const std::string& version);

}  // namespace deltafin
