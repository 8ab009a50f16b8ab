// unknown_word.h: what was mistyped on the command line, and the nearest word that is right.
//
// CLI11's own message names whatever it could not use last. Functions without state; they only word messages.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace deltafin {

// The first command or option among the words after the program's name that does not exist: a whole message; "" when
// all exist.
std::string UnknownWord(const CLI::App& root, std::span<const std::string> words);
// The command of that name right below `app`; null: there is none.
const CLI::App* FindCommand(const CLI::App& app, const std::string& word);
// "no such command: rnu: did you mean run? ..."; `app`: whose subcommand it should be.
std::string NoSuchCommand(const CLI::App& app, const std::string& word);

}  // namespace deltafin
