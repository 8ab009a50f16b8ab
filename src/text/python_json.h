// python_json.h: JSON as Python's standard library reads and writes it.
//
// Prompts contain JSON that the reference passed through Python, so three things matter that ordinary JSON libraries
// lose: integers of any size, NaN and the infinities, and the exact spelling of numbers. Used for chat content and the
// small tokenizer files, not for large documents. Members keep their order; a repeated key keeps its first position and
// its last value. An escaped lone surrogate becomes U+FFFD; other bytes of strings are kept as they are. Errors:
// kCorrupt (not JSON), kUnsupported (nested deeper than 128). Ownership: values. Thread rule: as any value type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace deltafin {

struct PythonJsonMember;

struct PythonJson {
  enum class Kind { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;  // kFloat
  std::string text;   // kString: the characters; kInteger: the decimal digits, with '-' where negative
  std::vector<PythonJson> items;
  std::vector<PythonJsonMember> members;

  static PythonJson Bool(bool value);
  static PythonJson Integer(int64_t value);
  static PythonJson Float(double value);
  static PythonJson String(std::string value);
  static PythonJson Array();
  static PythonJson Object();

  bool is_null() const { return kind == Kind::kNull; }
  bool is_bool() const { return kind == Kind::kBool; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }

  // The member named `key`, or nullptr if there is none or this is not an object. Linear.
  const PythonJson* Find(std::string_view key) const;
  // kInteger that fits.
  std::optional<int64_t> AsInt64() const;
};

struct PythonJsonMember {
  std::string key;
  PythonJson value;
};

// Builds an object by Python's rule for repeated keys, without searching the members again and again.
class PythonObjectBuilder {
 public:
  void Set(std::string key, PythonJson value);
  PythonJson Take();

 private:
  PythonJson object_ = PythonJson::Object();
  std::unordered_map<std::string, size_t> positions_;
};

constexpr int kMostJsonLevels = 128;

Result<PythonJson> ParsePythonJson(std::string_view text, int most_levels = kMostJsonLevels);

enum class PythonJsonStyle {
  kSpaced,         // ", " and ": ", members in their order: json.dumps(x, ensure_ascii=False)
  kCompactSorted,  // "," and ":", members sorted by code point at every depth
};

std::string DumpPythonJson(const PythonJson& value, PythonJsonStyle style);

// repr() of a float: the shortest digits that read back the same.
std::string PythonFloatText(double value);

}  // namespace deltafin
