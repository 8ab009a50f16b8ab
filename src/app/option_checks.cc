#include "app/option_checks.h"

#include <CLI/CLI.hpp>
#include <charconv>

namespace deltafin {
namespace {

template <typename T>
bool Parse(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void RefuseEmptyValues(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_size() == 0 || option->get_expected_max() == 0) continue;  // a flag
    option->check(
        [](const std::string& value) { return value.empty() ? std::string("expected a value, got none") : ""; });
  }
}

std::string CheckWhole(const std::string& text, int64_t min) {
  int64_t value = 0;
  if (Parse(text, &value) && value >= min) return "";
  return "expected a whole number of at least " + std::to_string(min) + ", got " + text;
}

std::string CheckWholeUnsigned(const std::string& text) {
  uint64_t value = 0;
  return Parse(text, &value) ? "" : "expected a whole number from 0 to 18446744073709551615, got " + text;
}

}  // namespace deltafin
