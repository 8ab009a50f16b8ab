#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "text/text_test_support.h"
#include "text/utf8.h"

namespace deltafin::test {
namespace {

TEST(StreamDecoder, WaitsForTheRestOfACharacter) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.Append("a\xF0\x9F"), "a");
  EXPECT_EQ(decoder.Append("\x99\x82z"), "🙂z");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, WhatCannotBecomeACharacterIsReplacedAtOnce) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.Append("\xF0\x9F"), "");
  EXPECT_EQ(decoder.Append("a"), "\uFFFDa");
  EXPECT_EQ(decoder.Append("\x80"), "\uFFFD");
  EXPECT_EQ(decoder.Append("\xE0"), "");
  EXPECT_EQ(decoder.Append("\x80"), "\uFFFD\uFFFD");      // E0 must be followed by A0..BF
  EXPECT_EQ(decoder.Append("\xED\xA0"), "\uFFFD\uFFFD");  // surrogates are not characters
  EXPECT_EQ(decoder.Append("\xF4\x90"), "\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(decoder.Append("\xC0\xF5\xFF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decoder.Append("\xE2\x82"), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

// Table 3-8 of the Unicode standard, chapter 3.9.
TEST(Utf8, MaximalSubpartsAreReplacedAsUnicodeRecommends) {
  EXPECT_EQ(ToValidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
}

TEST(Utf8, EveryScalarValueSurvives) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(ToValidUtf8(text), text) << uint32_t{c};
    ASSERT_EQ(NextCodePoint(text).value, c);
    ASSERT_EQ(NextCodePoint(text).length, text.size());
  }
}

TEST(StreamDecoder, AnyCutsGiveTheSameText) {
  Random random(11);
  const std::string_view fragments[] = {"a",    "é",    "字",           "🙂", "\xF0\x9F",
                                        "\xE2", "\x80", "\xED\xA0\x80", "\xFF", "\xF4\x8F\xBF"};
  for (int round = 0; round < 2'000; ++round) {
    std::string bytes;
    for (unsigned n = random.Below(12); n > 0; --n) bytes += fragments[random.Below(std::size(fragments))];
    StreamDecoder decoder;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random.Below(4);
      text += decoder.Append(std::string_view(bytes).substr(at, length));
      at += length;
      ASSERT_EQ(ToValidUtf8(text), text);
    }
    text += decoder.Finish();
    ASSERT_EQ(text, ToValidUtf8(bytes));
  }
}

}  // namespace
}  // namespace deltafin::test
