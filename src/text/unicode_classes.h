// unicode_classes.h: which of the pre-tokenizers' character classes a code point is in, and normal form C.
//
// The classes are those of their patterns (marks, letters, numbers, Han, white space), nothing more general. Built
// once from ICU's tables into one byte per code point; unicode_classes.cc is the only includer of ICU. Thread rule: the
// table is constant after its first use; every function may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deltafin {

// Flags, added up. L = Lu Ll Lt Lm Lo, M = Mn Mc Me, N = Nd Nl No (Unicode general categories).
enum CharClass : uint8_t {
  kClassA = 1,       // (Lu Lt Lm Lo M) minus Han
  kClassB = 2,       // (Ll Lm Lo M) minus Han
  kClassLetter = 4,  // L
  kClassNumber = 8,  // N
  kClassHan = 16,    // Script=Han
  kClassSpace = 32,  // White_Space
};

class UnicodeClasses {
 public:
  static const UnicodeClasses& Get();

  // The flags of `code_point`; 0 above U+10FFFF (an ill-formed byte is in no class).
  uint8_t Of(char32_t code_point) const { return code_point < flags_.size() ? flags_[code_point] : uint8_t{0}; }
  // One byte for each of the 0x110000 code points.
  std::span<const uint8_t> flags() const { return flags_; }

 private:
  UnicodeClasses();
  std::vector<uint8_t> flags_;
};

// What Python's str.isspace accepts: White_Space and U+001C..U+001F.
bool IsPythonSpace(char32_t code_point);
// Whether every character of `text` is a Python space; true for "".
bool IsBlank(std::string_view text);

// `text` in normal form C; ill-formed UTF-8 stays as it is.
std::string ToNormalFormC(std::string_view text);

// "Unicode 15.0 (ICU 72)": the tables this build uses.
std::string UnicodeVersion();

}  // namespace deltafin
