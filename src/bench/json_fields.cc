#include "bench/json_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace deltafin {
namespace {

const Json& Nothing() {
  static const Json nothing;
  return nothing;
}

}  // namespace

const Json& Member(const Json& value, const char* key) {
  if (!value.is_object()) return Nothing();
  const auto found = value.find(key);
  return found == value.end() ? Nothing() : *found;
}

double NumberOf(const Json& object, const char* key, double otherwise) {
  const Json& member = Member(object, key);
  if (!member.is_number()) return otherwise;
  const double value = member.get<double>();
  return std::isfinite(value) ? value : otherwise;
}

uint64_t CountOf(const Json& object, const char* key, uint64_t otherwise) {
  const Json& member = Member(object, key);
  return member.is_number_unsigned() ? member.get<uint64_t>() : otherwise;
}

std::string TextOf(const Json& object, const char* key, std::string otherwise) {
  const Json& member = Member(object, key);
  return member.is_string() ? member.get<std::string>() : otherwise;
}

bool FlagOf(const Json& object, const char* key, bool otherwise) {
  const Json& member = Member(object, key);
  return member.is_boolean() ? member.get<bool>() : otherwise;
}

const Json& ListOf(const Json& object, const char* key) {
  static const Json empty = Json::array();
  const Json& member = Member(object, key);
  return member.is_array() ? member : empty;
}

}  // namespace deltafin
