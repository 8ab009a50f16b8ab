// choices.h: options whose value is one of a few words, declared once for --help, the manual, completions and refusals.
//
// Functions without state over one table. Errors: kInvalidArgument.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace CLI {
class App;
}

namespace deltafin {

// The words that `option` ("--io") of `command` ("run") takes; empty: anything.
std::span<const std::string_view> ChoicesOf(std::string_view command, std::string_view option);
// "--io foo: expected auto, uring or pread", for options that mean the same in every command.
Status CheckChoice(std::string_view option, const std::string& value);

// Declares them as the options' type ("auto|uring|pread"), in `app` and below.
void DeclareChoices(CLI::App& app);

}  // namespace deltafin
