// config_fields: reading a drafter's config.json strictly: every field that is asked for must be there and fit.
//
// The first fault is kept, so a reader asks for all fields and looks at status() once. Holds references: a config must
// outlive it. Errors: kCorrupt (missing or no such value), kUnsupported (another layout).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace deltafin {

// Objects that name a member twice mean different things to different readers: they are refused.
Result<Json> ParseWithoutDuplicates(std::string_view text, const std::string& what);

class ConfigFields {
 public:
  // `what` names the document in errors.
  ConfigFields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  int64_t Whole(const char* key, int64_t least, int64_t most);
  double Number(const char* key, double above, double most);
  // What tells a layout from others.
  void Expect(const char* key, const Json& expected);
  // The same where being absent or null says so too.
  void ExpectOrAbsent(const char* key, const Json& expected);
  const Json* Find(const char* key);
  void Fault(ErrorCode code, const char* key, const std::string& expected, const Json& got);
  void Adopt(const Status& fault) { status_ = fault; }

  Status status() const { return status_; }
  const std::string& what() const { return what_; }

 private:
  const Json& object_;
  std::string what_;
  Status status_;
};

}  // namespace deltafin
