#include "text/utf8.h"

namespace deltafin {

namespace {

struct LeadByte {
  size_t length;          // of the whole sequence, 0: not a lead byte
  uint8_t second_lowest;  // range of the second byte
  uint8_t second_highest;
};

// Table 3-7 of the Unicode standard: the second byte is narrowed after E0, ED, F0 and F4.
LeadByte ClassifyLead(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step ScanUtf8(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Utf8Scan::kComplete, 1, lead};
  const LeadByte kind = ClassifyLead(lead);
  if (kind.length == 0) return {Utf8Scan::kIllFormed, 1, kReplacementCharacter};
  char32_t value = lead & (0x7Fu >> kind.length);
  for (size_t i = 1; i < kind.length; ++i) {
    if (i == text.size()) return {Utf8Scan::kTruncated, i, kReplacementCharacter};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t lowest = i == 1 ? kind.second_lowest : 0x80;
    const uint8_t highest = i == 1 ? kind.second_highest : 0xBF;
    if (byte < lowest || byte > highest) return {Utf8Scan::kIllFormed, i, kReplacementCharacter};
    value = (value << 6) | (byte & 0x3Fu);
  }
  return {Utf8Scan::kComplete, kind.length, value};
}

CodePoint NextCodePoint(std::string_view text) {
  const Utf8Step step = ScanUtf8(text);
  if (step.scan != Utf8Scan::kComplete) return {kIllFormed, 1};
  return {step.code_point, step.length};
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    tail(6);
  } else {
    put(0xF0 | (code_point >> 18));
    tail(12);
    tail(6);
  }
  tail(0);
}

std::string ToValidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = ScanUtf8(bytes);
    if (step.scan == Utf8Scan::kComplete) {
      text.append(bytes.substr(0, step.length));
    } else {
      AppendUtf8(kReplacementCharacter, &text);
    }
    bytes.remove_prefix(step.length);
  }
  return text;
}

}  // namespace deltafin
