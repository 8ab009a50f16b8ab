#include "server/request_fields.h"

#include <algorithm>
#include <cmath>

#include "server/json_text.h"

namespace deltafin {

std::string_view KindName(const PythonJson& value) {
  switch (value.kind) {
    case PythonJson::Kind::kNull:
      return "null";
    case PythonJson::Kind::kBool:
      return "a truth value";
    case PythonJson::Kind::kInteger:
    case PythonJson::Kind::kFloat:
      return "a number";
    case PythonJson::Kind::kString:
      return "a string";
    case PythonJson::Kind::kArray:
      return "a list";
    case PythonJson::Kind::kObject:
      return "an object";
  }
  return "nothing";
}

RequestFields::RequestFields(const PythonJson& object, std::string place) : object_(object), place_(std::move(place)) {
  if (object.is_object()) return;
  const std::string what = place_.empty() ? "the body" : place_;
  fault_ = ApiError{400, Cat(what, ": expected an object, got ", KindName(object)), place_, "invalid_type"};
}

std::string RequestFields::Path(std::string_view name) const {
  return place_.empty() ? std::string(name) : Cat(place_, ".", name);
}

void RequestFields::Fault(ApiError error) {
  if (!fault_) fault_ = std::move(error);
}

void RequestFields::Fault(std::string_view name, const std::string& expected) { Fault(BadField(Path(name), expected)); }

const PythonJson* RequestFields::Take(std::string_view name) {
  known_.push_back(name);
  if (fault_) return nullptr;
  const PythonJson* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const PythonJson* RequestFields::Any(std::string_view name) { return Take(name); }

const PythonJson* RequestFields::Array(std::string_view name) {
  const PythonJson* value = Take(name);
  if (value == nullptr || value->is_array()) return value;
  Fault(name, Cat("a list, got ", KindName(*value)));
  return nullptr;
}

const PythonJson* RequestFields::Object(std::string_view name) {
  const PythonJson* value = Take(name);
  if (value == nullptr || value->is_object()) return value;
  Fault(name, Cat("an object, got ", KindName(*value)));
  return nullptr;
}

std::optional<double> RequestFields::Number(std::string_view name, double least, double most) {
  const PythonJson* value = Take(name);
  if (value == nullptr) return std::nullopt;
  double number = NAN;
  if (value->kind == PythonJson::Kind::kFloat) number = value->number;
  if (value->kind == PythonJson::Kind::kInteger) number = std::strtod(value->text.c_str(), nullptr);
  if (number >= least && number <= most) return number;
  Fault(name, std::isnan(number) ? Cat("a number, got ", KindName(*value))
                                 : Cat("a number from ", least, " to ", most, ", got ", number));
  return std::nullopt;
}

std::optional<int64_t> RequestFields::Whole(std::string_view name, int64_t least, int64_t most) {
  const PythonJson* value = Take(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number = value->AsInt64();
  if (value->kind == PythonJson::Kind::kFloat && value->number == std::floor(value->number) &&
      std::abs(value->number) < 1e15)
    number = static_cast<int64_t>(value->number);
  if (number && *number >= least && *number <= most) return number;
  Fault(name, Cat("a whole number from ", least, " to ", most));
  return std::nullopt;
}

std::optional<bool> RequestFields::Bool(std::string_view name) {
  const PythonJson* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->boolean;
  Fault(name, Cat("true or false, got ", KindName(*value)));
  return std::nullopt;
}

std::optional<std::string> RequestFields::String(std::string_view name) {
  const PythonJson* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->text;
  Fault(name, Cat("a string, got ", KindName(*value)));
  return std::nullopt;
}

std::optional<std::string> RequestFields::Choice(std::string_view name,
                                                 std::initializer_list<std::string_view> values) {
  std::optional<std::string> text = String(name);
  if (!text || std::find(values.begin(), values.end(), *text) != values.end()) return text;
  std::string list;
  for (const std::string_view value : values) list += Cat(list.empty() ? "" : ", ", "\"", value, "\"");
  Fault(name, "one of " + list);
  return std::nullopt;
}

void RequestFields::Ignore(std::initializer_list<std::string_view> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void RequestFields::Refuse(std::string_view name, std::string_view reason,
                           std::initializer_list<std::string_view> harmless) {
  const PythonJson* value = Take(name);
  if (value == nullptr) return;
  const std::string text = JsonText(*value);
  if (std::find(harmless.begin(), harmless.end(), text) != harmless.end()) return;
  Fault(ApiError{400, Cat(Path(name), ": ", reason), Path(name), "unsupported_value"});
}

std::optional<ApiError> RequestFields::Finish() {
  for (const PythonJsonMember& member : object_.members) {
    if (fault_) break;
    if (std::find(known_.begin(), known_.end(), member.key) != known_.end()) continue;
    const std::string name = Path(member.key.size() > 64 ? member.key.substr(0, 64) : member.key);
    fault_ = ApiError{400, Cat(name, ": no such field here"), name, "unknown_parameter"};
  }
  return fault_;
}

}  // namespace deltafin
