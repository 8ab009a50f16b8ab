#include "text/python_json.h"

#include <charconv>
#include <utility>

namespace deltafin {

PythonJson PythonJson::Bool(bool value) {
  PythonJson json;
  json.kind = Kind::kBool;
  json.boolean = value;
  return json;
}

PythonJson PythonJson::Integer(int64_t value) {
  PythonJson json;
  json.kind = Kind::kInteger;
  json.text = std::to_string(value);
  return json;
}

PythonJson PythonJson::Float(double value) {
  PythonJson json;
  json.kind = Kind::kFloat;
  json.number = value;
  return json;
}

PythonJson PythonJson::String(std::string value) {
  PythonJson json;
  json.kind = Kind::kString;
  json.text = std::move(value);
  return json;
}

PythonJson PythonJson::Array() {
  PythonJson json;
  json.kind = Kind::kArray;
  return json;
}

PythonJson PythonJson::Object() {
  PythonJson json;
  json.kind = Kind::kObject;
  return json;
}

const PythonJson* PythonJson::Find(std::string_view key) const {
  for (const PythonJsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::optional<int64_t> PythonJson::AsInt64() const {
  if (kind != Kind::kInteger) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void PythonObjectBuilder::Set(std::string key, PythonJson value) {
  const auto [position, inserted] = positions_.try_emplace(key, object_.members.size());
  if (inserted) {
    object_.members.push_back({std::move(key), std::move(value)});
  } else {
    object_.members[position->second].value = std::move(value);
  }
}

PythonJson PythonObjectBuilder::Take() {
  positions_.clear();
  return std::exchange(object_, PythonJson::Object());
}

}  // namespace deltafin
