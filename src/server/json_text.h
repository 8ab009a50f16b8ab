// json_text.h: writing the JSON of answers.
//
// Text is valid UTF-8 here: requests that are not are refused, and decoders make nothing else. Numbers are finite.
// Pure functions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "text/python_json.h"

namespace deltafin {

// With its quotes. "</" is written "<\/", so that a page may hold it in a script.
std::string JsonString(std::string_view text);

inline std::string JsonText(const PythonJson& value) { return DumpPythonJson(value, PythonJsonStyle::kSpaced); }

inline PythonJson JsonObject(std::initializer_list<std::pair<std::string_view, PythonJson>> members) {
  PythonJson object = PythonJson::Object();
  for (const auto& [key, value] : members) object.members.push_back({std::string(key), value});
  return object;
}

inline PythonJson JsonArray(std::initializer_list<PythonJson> items) {
  PythonJson array = PythonJson::Array();
  array.items = items;
  return array;
}

inline PythonJson JsonOf(std::string_view text) { return PythonJson::String(std::string(text)); }
inline PythonJson JsonOf(int64_t value) { return PythonJson::Integer(value); }

}  // namespace deltafin
