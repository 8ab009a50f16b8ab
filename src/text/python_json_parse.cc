#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "text/python_json.h"
#include "text/utf8.h"

namespace deltafin {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The value of a number that std::from_chars could not represent: it is either far too large or far too small.
double OutOfRangeValue(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  const size_t exponent_at = std::min(digits.find_first_of("eE"), digits.size());
  const std::string_view mantissa = digits.substr(negative ? 1 : 0, exponent_at - (negative ? 1 : 0));
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const size_t first = mantissa.find_first_of("123456789");
  int64_t exponent = 0;
  if (exponent_at < digits.size()) {
    std::string_view text = digits.substr(exponent_at + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;
    if (error != std::errc()) exponent = text.starts_with('-') ? -kHuge : kHuge;
    exponent = std::min(std::max(exponent, -kHuge), kHuge);
  }
  if (first != std::string_view::npos) exponent += static_cast<int64_t>(point) - static_cast<int64_t>(first);
  const double size = exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return negative ? -size : size;
}

class Parser {
 public:
  Parser(std::string_view text, int most_levels) : text_(text), most_levels_(most_levels) {}

  Result<PythonJson> ParseDocument() {
    SkipSpaces();
    DFIN_TRY(PythonJson value, ParseValue(0));
    SkipSpaces();
    if (at_ != text_.size()) return Bad("expected the end of the text");
    return value;
  }

 private:
  Failure Bad(std::string_view what) const { return Fail(ErrorCode::kCorrupt, "JSON at byte ", at_, ": ", what); }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool Accept(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void SkipSpaces() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  Result<PythonJson> ParseValue(int depth) {
    const char c = Peek();
    if (c == '"') {
      DFIN_TRY(std::string text, ParseString());
      return PythonJson::String(std::move(text));
    }
    if (c == '{' || c == '[') {
      if (depth == most_levels_)
        return Fail(ErrorCode::kUnsupported, "JSON at byte ", at_, ": nested deeper than ", most_levels_, " levels");
      return c == '{' ? ParseObject(depth + 1) : ParseArray(depth + 1);
    }
    if (Accept("null")) return PythonJson();
    if (Accept("true")) return PythonJson::Bool(true);
    if (Accept("false")) return PythonJson::Bool(false);
    if (Accept("NaN")) return PythonJson::Float(std::numeric_limits<double>::quiet_NaN());
    if (Accept("Infinity")) return PythonJson::Float(std::numeric_limits<double>::infinity());
    if (Accept("-Infinity")) return PythonJson::Float(-std::numeric_limits<double>::infinity());
    return ParseNumber();
  }

  Result<PythonJson> ParseArray(int depth) {
    PythonJson array = PythonJson::Array();
    ++at_;
    SkipSpaces();
    if (Accept("]")) return array;
    while (true) {
      DFIN_TRY(PythonJson item, ParseValue(depth));
      array.items.push_back(std::move(item));
      SkipSpaces();
      if (Accept("]")) return array;
      if (!Accept(",")) return Bad("expected ',' or ']'");
      SkipSpaces();
    }
  }

  Result<PythonJson> ParseObject(int depth) {
    PythonObjectBuilder object;
    ++at_;
    SkipSpaces();
    if (Accept("}")) return object.Take();
    while (true) {
      if (Peek() != '"') return Bad("expected a member name in double quotes");
      DFIN_TRY(std::string key, ParseString());
      SkipSpaces();
      if (!Accept(":")) return Bad("expected ':'");
      SkipSpaces();
      DFIN_TRY(PythonJson value, ParseValue(depth));
      object.Set(std::move(key), std::move(value));
      SkipSpaces();
      if (Accept("}")) return object.Take();
      if (!Accept(",")) return Bad("expected ',' or '}'");
      SkipSpaces();
    }
  }

  // (-?(0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?
  Result<PythonJson> ParseNumber() {
    const size_t start = at_;
    Accept("-");
    if (!IsDigit(Peek())) return Bad("expected a value");
    if (!Accept("0")) SkipDigits();
    const size_t integer_end = at_;
    AcceptDigitsAfter(at_ + (Peek() == '.' ? 1 : 0));
    if (Peek() == 'e' || Peek() == 'E') {
      const size_t sign = at_ + 1;
      AcceptDigitsAfter(sign < text_.size() && (text_[sign] == '-' || text_[sign] == '+') ? sign + 1 : sign);
    }
    const std::string_view digits = text_.substr(start, at_ - start);
    if (at_ == integer_end) {
      PythonJson json = PythonJson::Integer(0);
      if (digits != "-0") json.text = std::string(digits);
      return json;
    }
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return PythonJson::Float(error == std::errc::result_out_of_range ? OutOfRangeValue(digits) : value);
  }

  void SkipDigits() {
    while (IsDigit(Peek())) ++at_;
  }

  // Moves behind the digits that start at `from`; stays where it is if there are none.
  void AcceptDigitsAfter(size_t from) {
    if (from == at_ || from >= text_.size() || !IsDigit(text_[from])) return;
    at_ = from;
    SkipDigits();
  }

  Result<std::string> ParseString() {
    std::string out;
    ++at_;
    while (true) {
      const size_t end = std::min(text_.find_first_of("\"\\", at_), text_.size());
      for (; at_ < end; ++at_) {
        if (static_cast<unsigned char>(text_[at_]) < 0x20) return Bad("a control character inside a string");
        out.push_back(text_[at_]);
      }
      if (at_ == text_.size()) return Bad("a string without end");
      if (Accept("\"")) return out;
      DFIN_TRY_VOID(ParseEscape(&out));
    }
  }

  Status ParseEscape(std::string* out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    ++at_;
    const size_t name = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
    if (name != std::string_view::npos) {
      ++at_;
      out->push_back(kValues[name]);
      return {};
    }
    if (!Accept("u")) return Bad("an unknown escape");
    DFIN_TRY(char32_t unit, ParseHex4());
    const bool lead = unit >= 0xD800 && unit < 0xDC00;
    if (lead && Accept("\\u")) {
      const size_t after_marker = at_;
      DFIN_TRY(const char32_t trail, ParseHex4());
      if (trail >= 0xDC00 && trail < 0xE000) {
        AppendUtf8(0x10000 + ((unit - 0xD800) << 10) + (trail - 0xDC00), out);
        return {};
      }
      at_ = after_marker - 2;  // an escape of its own
    }
    AppendUtf8(unit >= 0xD800 && unit < 0xE000 ? kReplacementCharacter : unit, out);
    return {};
  }

  Result<char32_t> ParseHex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) return Bad("expected four hex digits");
    at_ += 4;
    return static_cast<char32_t>(value);
  }

  std::string_view text_;
  int most_levels_;
  size_t at_ = 0;
};

}  // namespace

Result<PythonJson> ParsePythonJson(std::string_view text, int most_levels) {
  return Parser(text, most_levels).ParseDocument();
}

}  // namespace deltafin
