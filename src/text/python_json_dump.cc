#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "text/python_json.h"

namespace deltafin {

namespace {

void AppendString(std::string_view text, std::string* out) {
  constexpr std::string_view kPlain = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  constexpr std::string_view kHex = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    const size_t name = kPlain.find(c);
    if (name != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kNames[name]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out->append("\\u00");
      out->push_back(kHex[static_cast<size_t>(c) >> 4]);
      out->push_back(kHex[static_cast<size_t>(c) & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

class Writer {
 public:
  Writer(PythonJsonStyle style, std::string* out)
      : sorted_(style == PythonJsonStyle::kCompactSorted),
        comma_(sorted_ ? "," : ", "),
        colon_(sorted_ ? ":" : ": "),
        out_(out) {}

  // Recursion is bounded: values come from the parser, which limits the depth.
  void Write(const PythonJson& value) {
    switch (value.kind) {
      case PythonJson::Kind::kNull:
        out_->append("null");
        break;
      case PythonJson::Kind::kBool:
        out_->append(value.boolean ? "true" : "false");
        break;
      case PythonJson::Kind::kInteger:
        out_->append(value.text);
        break;
      case PythonJson::Kind::kFloat:
        out_->append(PythonFloatText(value.number));
        break;
      case PythonJson::Kind::kString:
        AppendString(value.text, out_);
        break;
      case PythonJson::Kind::kArray:
        WriteArray(value);
        break;
      case PythonJson::Kind::kObject:
        WriteObject(value);
        break;
    }
  }

 private:
  void WriteArray(const PythonJson& array) {
    out_->push_back('[');
    bool first = true;
    for (const PythonJson& item : array.items) {
      if (!std::exchange(first, false)) out_->append(comma_);
      Write(item);
    }
    out_->push_back(']');
  }

  void WriteObject(const PythonJson& object) {
    std::vector<const PythonJsonMember*> order;
    for (const PythonJsonMember& member : object.members) order.push_back(&member);
    // Byte order of UTF-8 is code point order.
    if (sorted_)
      std::ranges::sort(order, {}, [](const PythonJsonMember* member) { return std::string_view(member->key); });
    out_->push_back('{');
    bool first = true;
    for (const PythonJsonMember* member : order) {
      if (!std::exchange(first, false)) out_->append(comma_);
      AppendString(member->key, out_);
      out_->append(colon_);
      Write(member->value);
    }
    out_->push_back('}');
  }

  bool sorted_;
  std::string_view comma_;
  std::string_view colon_;
  std::string* out_;
};

}  // namespace

std::string PythonFloatText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 64> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size() - 1, std::abs(value), std::chars_format::scientific);
  *result.ptr = '\0';
  const std::string_view text(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  // d.ddde+XX: the digits, and the exponent of the first one.
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int exponent = std::atoi(buffer.data() + e + 1);
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out.append(digits, 0, 1);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    const int magnitude = std::abs(exponent);
    return out.append(exponent < 0 ? "e-" : "e+").append(magnitude < 10 ? "0" : "").append(std::to_string(magnitude));
  }
  if (exponent < 0) return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out.append(digits).append(whole - digits.size(), '0').append(".0");
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

std::string DumpPythonJson(const PythonJson& value, PythonJsonStyle style) {
  std::string out;
  Writer(style, &out).Write(value);
  return out;
}

}  // namespace deltafin
