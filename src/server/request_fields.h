// RequestFields: one JSON object of a request, read field by field, strictly.
//
// Every field that may occur is asked for once, by name and with what it may be; Finish() refuses the others. The
// first fault found is kept, and later questions then answer with nothing, so a reader asks all it has to and looks at
// the end. null counts as absent. Refers to the object, which must outlive it. Thread rule: thread-compatible.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "text/python_json.h"

namespace deltafin {

class RequestFields {
 public:
  // `place`: how the object is called in messages; "" for the body.
  RequestFields(const PythonJson& object, std::string place);

  // nullptr: absent or null.
  const PythonJson* Any(std::string_view name);
  const PythonJson* Array(std::string_view name);
  const PythonJson* Object(std::string_view name);
  std::optional<double> Number(std::string_view name, double least, double most);
  std::optional<int64_t> Whole(std::string_view name, int64_t least, int64_t most);
  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // One of these.
  std::optional<std::string> Choice(std::string_view name, std::initializer_list<std::string_view> values);

  // Accepted whatever it is: asks nothing of an engine.
  void Ignore(std::initializer_list<std::string_view> names);
  // Known, but not to be had: refused with the reason unless absent, null, or one of these as JSON text.
  void Refuse(std::string_view name, std::string_view reason, std::initializer_list<std::string_view> harmless = {});

  // The field's name with its place: "tools[0].function.name".
  std::string Path(std::string_view name) const;
  void Fault(std::string_view name, const std::string& expected);
  void Fault(ApiError error);
  // After the last question: fields that nobody asked for are a fault.
  std::optional<ApiError> Finish();
  const std::optional<ApiError>& fault() const { return fault_; }

 private:
  const PythonJson* Take(std::string_view name);

  const PythonJson& object_;
  std::string place_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> fault_;
};

// "a string", "a list": for messages.
std::string_view KindName(const PythonJson& value);

}  // namespace deltafin
