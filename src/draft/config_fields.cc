#include "draft/config_fields.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace deltafin {

Result<Json> ParseWithoutDuplicates(std::string_view text, const std::string& what) {
  DFIN_TRY(Json parsed, ParseJson(text, what));  // bounds the depth and says what is wrong
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = value.get<std::string>();
    return true;
  };
  const Json again = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!twice.empty() || again.is_discarded())
    return Fail(ErrorCode::kCorrupt, what, ": ", twice.substr(0, 80), ": expected once, got it twice");
  return parsed;
}

int64_t ConfigFields::Whole(const char* key, int64_t least, int64_t most) {
  const Json* value = Find(key);
  if (value == nullptr) return least;
  const bool fits = value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  const int64_t number = fits ? value->get<int64_t>() : least - 1;
  if (number >= least && number <= most) return number;
  Fault(ErrorCode::kCorrupt, key, Cat("a whole number from ", least, " to ", most), *value);
  return least;
}

double ConfigFields::Number(const char* key, double above, double most) {
  const Json* value = Find(key);
  if (value == nullptr) return most;
  const double number = value->is_number() ? value->get<double>() : above;
  if (number > above && number <= most) return number;
  Fault(ErrorCode::kCorrupt, key, Cat("a number above ", above, ", at most ", most), *value);
  return most;
}

void ConfigFields::Expect(const char* key, const Json& expected) {
  const Json* value = Find(key);
  if (value != nullptr && *value != expected) Fault(ErrorCode::kUnsupported, key, DumpJson(expected), *value);
}

void ConfigFields::ExpectOrAbsent(const char* key, const Json& expected) {
  const auto it = object_.find(key);
  if (it != object_.end() && !it->is_null() && *it != expected)
    Fault(ErrorCode::kUnsupported, key, DumpJson(expected), *it);
}

const Json* ConfigFields::Find(const char* key) {
  const auto it = object_.find(key);
  if (it != object_.end()) return &*it;
  if (status_) status_ = Fail(ErrorCode::kCorrupt, what_, ": ", key, ": missing");
  return nullptr;
}

void ConfigFields::Fault(ErrorCode code, const char* key, const std::string& expected, const Json& got) {
  if (status_) status_ = Fail(code, what_, ": ", key, ": expected ", expected, ", got ", DumpJson(got).substr(0, 80));
}

}  // namespace deltafin
