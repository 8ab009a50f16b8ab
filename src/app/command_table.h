// command_table.h: what the command line consists of, as data: the same declarations that --help prints.
//
// The manual page and the shell completions are written from it, so they cannot name other options than the program
// takes. Value types; CommandTable() is a pure function of the declared command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace deltafin {

enum class ValueKind : uint8_t { kNone, kFolder, kFile, kChoice, kOther };

struct OptionRow {
  std::vector<std::string> names;  // "--model", "-h"; as they are typed
  ValueKind kind = ValueKind::kNone;
  std::string value;                 // "DIR"; "" for a flag
  std::vector<std::string> choices;  // kChoice
  std::string help;
  std::string range;  // "1 to 64"; "" without one
  bool required = false;
  bool repeatable = false;
  bool engine = false;      // one of those that all commands with an engine share
  std::string argument;     // what --help calls it where it can also be given without its name; else ""
  bool positional = false;  // no name is typed; names holds what --help calls it
};

struct CommandRow {
  std::vector<std::string> words;  // {"bench", "kernels"}; empty: the program itself
  std::string summary;
  std::vector<OptionRow> options;        // in the order of --help
  std::vector<std::string> subcommands;  // next words
};

// The program first, then each command followed by its own ones.
std::vector<CommandRow> CommandTable(const CLI::App& root);

}  // namespace deltafin
