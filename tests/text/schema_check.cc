#include "schema_check.h"

#include <cmath>
#include <regex>

namespace deltafin::test {
namespace {

using J = OrderedJson;

J InventValue(Random& random, int level);

J InventNumber(Random& random, const char* type) {
  J schema = {{"type", type}};
  const double low = static_cast<double>(random.Below(2000)) - 1000, width = static_cast<double>(random.Below(300));
  const double scale = std::string(type) == "number" && random.Below(2) == 0 ? 100 : 1;
  if (random.Below(2) == 0) schema["minimum"] = low / scale;
  if (random.Below(2) == 0) schema["maximum"] = (low + width) / scale;
  if (random.Below(5) == 0) schema["exclusiveMaximum"] = (low + width + 2) / scale;
  return schema;
}

J InventString(Random& random) {
  J schema = {{"type", "string"}};
  static const char* const kPatterns[] = {"^[a-z]{2,5}$",     "^\\d{3}-\\d{4}$", "^(red|green|blue)( light)?$",
                                          "^[A-Z][a-z]*\\.$", "^a.c$",           "^[^\"\\\\]{1,4}$",
                                          "^\\w+@\\w+$",      "^x(?:yz){0,2}$"};
  switch (random.Below(4)) {
    case 0:
      schema["pattern"] = kPatterns[random.Below(std::size(kPatterns))];
      break;
    case 1:
      schema["minLength"] = random.Below(4);
      schema["maxLength"] = 4 + random.Below(6);
      break;
    case 2:
      schema["format"] = random.Below(2) == 0 ? "date" : "uuid";
      break;
    default:
      break;
  }
  return schema;
}

J InventObject(Random& random, int level) {
  J schema = {{"type", "object"}, {"properties", J::object()}, {"additionalProperties", false}};
  J required = J::array();
  static const char* const kNames[] = {"name", "age", "the \"quoted\"", "größe", "a\\b", "tags", "x"};
  const size_t count = random.Below(5);
  for (size_t i = 0; i < count; ++i) {
    const char* name = kNames[(random.Below(3) + 2 * i) % std::size(kNames)];
    schema["properties"][name] = InventValue(random, level + 1);
    if (random.Below(3) > 0) required.push_back(name);
  }
  schema["required"] = required;
  if (random.Below(4) == 0) schema.erase("additionalProperties");
  return schema;
}

J InventArray(Random& random, int level) {
  J schema = {{"type", "array"}, {"items", InventValue(random, level + 1)}};
  const unsigned fewest = random.Below(3);
  if (random.Below(2) == 0) schema["minItems"] = fewest;
  if (random.Below(2) == 0) schema["maxItems"] = fewest + random.Below(3);
  return schema;
}

J InventValue(Random& random, int level) {
  switch (random.Below(level > 3 ? 6 : 10)) {
    case 0:
      return InventNumber(random, "integer");
    case 1:
      return InventNumber(random, "number");
    case 2:
      return {{"type", "boolean"}};
    case 3:
      return InventString(random);
    case 4:
      return {{"enum", {"north", "so\"uth", 3, nullptr, 2.5}}};
    case 5:
      return {{"type", {"string", "null"}}};
    case 6:
      return InventArray(random, level);
    case 7:
      return {{"anyOf", {InventValue(random, level + 1), {{"type", "null"}}}}};
    case 8:
      return {{"$ref", "#/$defs/node"}};
    default:
      return InventObject(random, level);
  }
}

bool IsType(const J& value, const std::string& type) {
  if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

size_t CodePoints(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

std::string WhyInvalidNumber(double x, const J& s) {
  if (s.contains("minimum") && x < s["minimum"].get<double>()) return "below minimum";
  if (s.contains("maximum") && x > s["maximum"].get<double>()) return "above maximum";
  if (s.contains("exclusiveMaximum") && x >= s["exclusiveMaximum"].get<double>()) return "not below exclusiveMaximum";
  return "";
}

std::string WhyInvalidString(const std::string& text, const J& s) {
  if (s.contains("minLength") && CodePoints(text) < s["minLength"].get<size_t>()) return "shorter than minLength";
  if (s.contains("maxLength") && CodePoints(text) > s["maxLength"].get<size_t>()) return "longer than maxLength";
  std::string pattern = s.value("pattern", "");
  if (s.value("format", "") == "date") pattern = "^\\d{4}-\\d\\d-\\d\\d$";
  if (s.value("format", "") == "uuid") pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
  // The engine knows bytes only, so a character of several bytes is one stand-in.
  std::string plain;
  for (const char c : text)
    if ((c & 0xc0) != 0x80) plain.push_back(static_cast<unsigned char>(c) >= 128 ? '~' : c);
  if (!pattern.empty() && !std::regex_search(plain, std::regex(pattern))) return "does not match " + pattern;
  return "";
}

std::string WhyInvalidObject(const J& value, const J& s, const J& root) {
  const J properties = s.value("properties", J::object());
  const J required = s.value("required", J::array());
  for (const J& name : required)
    if (!value.contains(name.get<std::string>())) return "lacks " + name.dump();
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      const std::string why = WhyInvalid(member, properties[name], root);
      if (!why.empty()) return name + ": " + why;
    } else if (s.contains("additionalProperties") && s["additionalProperties"] == J(false)) {
      return "has " + name;
    }
  }
  return "";
}

}  // namespace

OrderedJson InventSchema(Random& random) {
  J schema = InventObject(random, 0);
  schema["$defs"]["node"] = {{"type", "object"},
                             {"properties",
                              {{"value", InventNumber(random, "integer")},
                               {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}}}},
                             {"required", {"value"}},
                             {"additionalProperties", false}};
  return schema;
}

std::string WhyInvalid(const OrderedJson& value, const OrderedJson& s, const OrderedJson& root) {
  if (s.contains("$ref")) return WhyInvalid(value, root["$defs"]["node"], root);
  if (s.contains("anyOf")) {
    std::string why;
    for (const J& one : s["anyOf"]) {
      why = WhyInvalid(value, one, root);
      if (why.empty()) return "";
    }
    return why;
  }
  if (s.contains("enum"))
    return std::find(s["enum"].begin(), s["enum"].end(), value) == s["enum"].end() ? "is none of the enum" : "";
  if (s.contains("type")) {
    const J types = s["type"].is_array() ? s["type"] : J::array({s["type"]});
    bool any = false;
    for (const J& type : types) any |= IsType(value, type.get<std::string>());
    if (!any) return "is not of type " + types.dump();
  }
  if (value.is_number()) return WhyInvalidNumber(value.get<double>(), s);
  if (value.is_string()) return WhyInvalidString(value.get<std::string>(), s);
  if (value.is_object()) return WhyInvalidObject(value, s, root);
  if (!value.is_array()) return "";
  if (s.contains("minItems") && value.size() < s["minItems"].get<size_t>()) return "fewer than minItems";
  if (s.contains("maxItems") && value.size() > s["maxItems"].get<size_t>()) return "more than maxItems";
  for (const J& item : value) {
    const std::string why = s.contains("items") ? WhyInvalid(item, s["items"], root) : "";
    if (!why.empty()) return "item: " + why;
  }
  return "";
}

}  // namespace deltafin::test
