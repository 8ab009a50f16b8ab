// utf8.h: reading code points from bytes that may be ill-formed, and replacing what is ill-formed.
//
// Two readings exist on purpose. The tokenizer must keep every byte, so NextCodePoint() steps over one ill-formed byte
// at a time. Text for people follows the "maximal subpart" practice of Unicode and WHATWG: ScanUtf8() groups the bytes
// that become one U+FFFD. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deltafin {

constexpr char32_t kReplacementCharacter = 0xFFFD;
// What an ill-formed byte counts as: above every code point, member of no class.
constexpr char32_t kIllFormed = 0x110000;

enum class Utf8Scan {
  kComplete,   // `length` bytes form one code point
  kTruncated,  // the text ends within a sequence that is well-formed so far
  kIllFormed,  // the first `length` bytes are a maximal ill-formed subpart
};

struct Utf8Step {
  Utf8Scan scan;
  size_t length;  // 1..4
  char32_t code_point;
};

// Looks at the start of `text`, which must not be empty.
Utf8Step ScanUtf8(std::string_view text);

struct CodePoint {
  char32_t value;  // kIllFormed for an ill-formed byte, which then has length 1
  size_t length;
};

// Looks at the start of `text`, which must not be empty.
CodePoint NextCodePoint(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// `bytes` with each maximal ill-formed subpart replaced by U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

}  // namespace deltafin
