// schema_values.h: values of JSON as schemas look at them.
//
// Private to src/text (json_grammar.cc). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/python_json.h"

namespace deltafin {

// Without spaces, members in their order.
std::string CompactJson(const PythonJson& value);
// One step of a JSON pointer: ~1 is a slash, ~0 a tilde.
std::string PointerKey(std::string_view step);
// Of an integer or float.
std::optional<double> NumberOf(const PythonJson& value);
// `type` as schemas name it: a whole number is of type integer and of type number.
bool IsOfType(const PythonJson& value, std::string_view type);
// The one type of a value; "number" for both kinds.
std::string_view TypeOf(const PythonJson& value);

}  // namespace deltafin
