#include "text/schema_values.h"

#include <cmath>
#include <cstdlib>
#include <initializer_list>

namespace deltafin {

std::string CompactJson(const PythonJson& value) {
  switch (value.kind) {
    case PythonJson::Kind::kArray: {
      std::string out = "[";
      for (const PythonJson& item : value.items) {
        if (out.size() > 1) out.push_back(',');
        out.append(CompactJson(item));
      }
      out.push_back(']');
      return out;
    }
    case PythonJson::Kind::kObject: {
      std::string out = "{";
      for (const PythonJsonMember& member : value.members) {
        if (out.size() > 1) out.push_back(',');
        out.append(DumpPythonJson(PythonJson::String(member.key), PythonJsonStyle::kSpaced));
        out.push_back(':');
        out.append(CompactJson(member.value));
      }
      out.push_back('}');
      return out;
    }
    default:
      return DumpPythonJson(value, PythonJsonStyle::kSpaced);
  }
}

std::string PointerKey(std::string_view step) {
  std::string key;
  for (size_t i = 0; i < step.size(); ++i) {
    const char next = i + 1 < step.size() ? step[i + 1] : ' ';
    const bool escaped = step[i] == '~' && (next == '0' || next == '1');
    key.push_back(escaped ? (next == '1' ? '/' : '~') : step[i]);
    if (escaped) ++i;
  }
  return key;
}

std::optional<double> NumberOf(const PythonJson& value) {
  if (value.kind == PythonJson::Kind::kFloat) return value.number;
  if (value.kind == PythonJson::Kind::kInteger) return std::strtod(value.text.c_str(), nullptr);
  return std::nullopt;
}

bool IsOfType(const PythonJson& value, std::string_view type) {
  switch (value.kind) {
    case PythonJson::Kind::kNull:
      return type == "null";
    case PythonJson::Kind::kBool:
      return type == "boolean";
    case PythonJson::Kind::kInteger:
      return type == "integer" || type == "number";
    case PythonJson::Kind::kFloat:
      return type == "number" || (type == "integer" && value.number == std::floor(value.number));
    case PythonJson::Kind::kString:
      return type == "string";
    case PythonJson::Kind::kArray:
      return type == "array";
    case PythonJson::Kind::kObject:
      return type == "object";
  }
  return false;
}

std::string_view TypeOf(const PythonJson& value) {
  for (const std::string_view type : {"object", "array", "string", "number", "boolean"})
    if (IsOfType(value, type)) return type;
  return "null";
}

}  // namespace deltafin
