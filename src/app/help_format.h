// help_format.h: how --help looks: ranges in words, values by a name or their choices.
//
// Affects only what is printed. Thread rule: main thread, before the commands are declared.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deltafin {

// For `root` and every command that is added to it later.
void UseHelpFormat(CLI::App& root);

// Puts the engine's many options under headings, in every command that has them.
void GroupOptions(CLI::App& app);
// Of such a heading.
inline constexpr const char* kEngineGroup = "Engine: ";

// What stands for the option's value: "DIR", "auto|off", "N"; "" for a flag.
std::string ValueName(const CLI::Option& option);
// "1 to 64"; "" without one.
std::string ValueRange(const CLI::Option& option);

}  // namespace deltafin
