#include "text/unicode_classes.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/uversion.h>

#include <algorithm>

#include "base/result.h"
#include "text/utf8.h"

namespace deltafin {

namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr size_t kLongestNormalised = size_t{1} << 28;  // ICU counts in 32 bits
constexpr uint32_t kMarks = U_GC_MN_MASK | U_GC_MC_MASK | U_GC_ME_MASK;
constexpr uint32_t kCaselessLetters = U_GC_LM_MASK | U_GC_LO_MASK;
constexpr uint32_t kAMask = U_GC_LU_MASK | U_GC_LT_MASK | kCaselessLetters | kMarks;
constexpr uint32_t kBMask = U_GC_LL_MASK | kCaselessLetters | kMarks;

uint8_t FlagsOf(UChar32 code_point) {
  const uint32_t category = U_GET_GC_MASK(code_point);
  const bool han = u_getIntPropertyValue(code_point, UCHAR_SCRIPT) == USCRIPT_HAN;
  unsigned flags = 0;
  if (!han && (category & kAMask) != 0) flags |= kClassA;
  if (!han && (category & kBMask) != 0) flags |= kClassB;
  if ((category & U_GC_L_MASK) != 0) flags |= kClassLetter;
  if ((category & U_GC_N_MASK) != 0) flags |= kClassNumber;
  if (han) flags |= kClassHan;
  if (u_isUWhiteSpace(code_point)) flags |= kClassSpace;
  return static_cast<uint8_t>(flags);
}

}  // namespace

UnicodeClasses::UnicodeClasses() : flags_(kCodePoints) {
  for (uint32_t c = 0; c < kCodePoints; ++c) flags_[c] = FlagsOf(static_cast<UChar32>(c));
}

const UnicodeClasses& UnicodeClasses::Get() {
  static const UnicodeClasses table;
  return table;
}

bool IsPythonSpace(char32_t code_point) {
  if (code_point >= 0x1C && code_point <= 0x1F) return true;
  return (UnicodeClasses::Get().Of(code_point) & kClassSpace) != 0;
}

bool IsBlank(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = NextCodePoint(text);
    if (!IsPythonSpace(point.value)) return false;
    text.remove_prefix(point.length);
  }
  return true;
}

std::string ToNormalFormC(std::string_view text) {
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  if (is_ascii || text.size() > kLongestNormalised || ToValidUtf8(text) != text) return std::string(text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFCInstance(status);
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  if (U_SUCCESS(status))
    form->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, status);
  return U_SUCCESS(status) ? out : std::string(text);
}

std::string UnicodeVersion() {
  UVersionInfo unicode;
  u_getUnicodeVersion(unicode);
  return Cat("Unicode ", int{unicode[0]}, ".", int{unicode[1]}, " (ICU ", U_ICU_VERSION_MAJOR_NUM, ")");
}

}  // namespace deltafin
