// option_checks.h: what CLI11's own checks let through: empty values, and whole numbers that do not fit.
//
// An empty value is usually a script's unset variable; taking it for "not given" would do something else than was
// asked. Used while the command line is being declared. Errors become CLI11's own (exit code 2).
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace deltafin {

// Every option of `app` that takes a value refuses an empty one. Call after all options were added.
void RefuseEmptyValues(CLI::App& app);

// "" when `text` is a whole number in decimal of at least `min` that fits, else what is wrong. For Option::check.
std::string CheckWhole(const std::string& text, int64_t min);
std::string CheckWholeUnsigned(const std::string& text);

}  // namespace deltafin
