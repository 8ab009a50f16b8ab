#include "text/unicode_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

// The recorded table of the Unicode version that this build's ICU has, if there is one.
const PythonJson* RecordedTable() {
  std::string version = UnicodeVersion();  // "Unicode 15.0 (ICU 72)"
  version = version.substr(8, version.find(' ', 8) - 8);
  std::ranges::replace(version, '.', '_');
  return At(CaseNamed("unicode_class_flags"), "expected").Find("unicode_" + version);
}

TEST(UnicodeClasses, TableHasTheRecordedChecksumAndCounts) {
  const PythonJson* expected = RecordedTable();
  if (expected == nullptr) GTEST_SKIP() << "no recorded table for " << UnicodeVersion();
  const std::span<const uint8_t> flags = UnicodeClasses::Get().flags();
  ASSERT_EQ(flags.size(), 0x110000u);
  const auto* bytes = reinterpret_cast<const char*>(flags.data());
  EXPECT_EQ(Hex64(Fnv1a64(std::string_view(bytes, flags.size()))), TextAt(*expected, "fnv1a64"));
  int64_t runs = 1;
  for (size_t c = 1; c < flags.size(); ++c) runs += flags[c] != flags[c - 1] ? 1 : 0;
  EXPECT_EQ(runs, IntAt(*expected, "runs"));
  const std::pair<CharClass, const char*> classes[] = {{kClassA, "A"},      {kClassB, "B"},
                                                       {kClassLetter, "L"}, {kClassNumber, "N"},
                                                       {kClassHan, "Han"},  {kClassSpace, "White_Space"}};
  for (const auto& [flag, name] : classes) {
    const auto members = std::ranges::count_if(flags, [flag = flag](uint8_t of) { return (of & flag) != 0; });
    EXPECT_EQ(members, IntAt(*expected, name)) << name;
  }
}

TEST(UnicodeClasses, WhatIsNoCodePointIsInNoClass) {
  EXPECT_EQ(UnicodeClasses::Get().Of(0x110000), 0);
  EXPECT_EQ(UnicodeClasses::Get().Of(0xFFFFFFFF), 0);
}

TEST(UnicodeClasses, PythonSpacesAreWhiteSpaceAndFourSeparators) {
  for (const char32_t separator : {0x1C, 0x1D, 0x1E, 0x1F}) {
    EXPECT_TRUE(IsPythonSpace(separator));
    EXPECT_EQ(UnicodeClasses::Get().Of(separator) & kClassSpace, 0);
  }
  for (const char32_t space : {U' ', U'\t', U'\n', U'\u0085', U'\u00A0', U'\u3000'}) EXPECT_TRUE(IsPythonSpace(space));
  for (const char32_t other : {U'a', U'\u180E', U'\u200B', U'\uFEFF', U'\u001B'}) EXPECT_FALSE(IsPythonSpace(other));
  EXPECT_TRUE(IsBlank(""));
  EXPECT_TRUE(IsBlank(" \t\u3000\x1C\n"));
  EXPECT_FALSE(IsBlank(" x "));
  EXPECT_FALSE(IsBlank("\xFF"));
}

}  // namespace
}  // namespace deltafin::test
