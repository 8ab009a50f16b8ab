#include "text/pretokenizer.h"

#include <gtest/gtest.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include "text/text_test_support.h"
#include "text/utf8.h"

namespace deltafin::test {
namespace {

using Pieces = std::vector<std::string_view>;

struct PieceCase {
  std::string_view text;
  Pieces pieces;
};

TEST(Pretokenizer, CutsTheTableOfExamplesAsSpecified) {
  const PieceCase cases[] = {
      {"AB你好c", {"AB", "你好", "c"}},
      {"HTTPServer camelCase", {"HTTPServer", " camel", "Case"}},
      {"x'd'd", {"x'd", "'d"}},
      {"한A", {"한", "A"}},
      {"ABC한", {"ABC한"}},
      {"\u0301ABC", {"\u0301", "ABC"}},
      {"\u0301e", {"\u0301e"}},
      {"!\u0301", {"!\u0301"}},
      {"1234567", {"123", "456", "7"}},
      {"1〇2", {"1〇2"}},
      {"a    b", {"a", "   ", " b"}},
      {"a    7", {"a", "   ", " ", "7"}},
      {"world  ", {"world", "  "}},
      {"Hello\n\nworld", {"Hello", "\n\n", "world"}},
      {" !", {" !"}},
      {"\t!", {"\t", "!"}},
      {"a!\n\nb", {"a", "!\n\n", "b"}},
      {"a\u2028b", {"a", "\u2028b"}},
      {"a\x1C"
       "b",
       {"a",
        "\x1C"
        "b"}},
      {"⺀⺁", {"⺀⺁"}},
      {"!⺀", {"!⺀"}},
      {"we'\u017F", {"we'\u017F"}},
      {"WE'LL'VE", {"WE'LL", "'VE"}},
      {"", {}},
  };
  for (const PieceCase& entry : cases) EXPECT_EQ(SplitPieces(entry.text), entry.pieces) << entry.text;
}

TEST(Pretokenizer, IllFormedBytesAreCharactersOfNoClass) {
  EXPECT_EQ(SplitPieces("a\xFF\xFE"), (Pieces{"a", "\xFF\xFE"}));
  EXPECT_EQ(SplitPieces("\xE4\xBD"), (Pieces{"\xE4\xBD"}));
  EXPECT_EQ(SplitPieces("\xFFx"), (Pieces{"\xFFx"}));  // a prefix, as punctuation would be
}

TEST(Pretokenizer, LongRunsAndSlicesAreCut) {
  EXPECT_EQ(SplitParts("", {}), Pieces{});
  EXPECT_EQ(SplitParts("abcdefghij", {4, 100}), (Pieces{"abcd", "efgh", "ij"}));
  EXPECT_EQ(SplitParts("ab   ab", {3, 100}), (Pieces{"ab   ab"}));
  EXPECT_EQ(SplitParts("aa   aa   aa", {3, 5}), (Pieces{"aa   ", "aa   ", "aa"}));
  EXPECT_EQ(SplitParts("aaaaa", {3, 4}), (Pieces{"aaa", "a", "a"}));
  EXPECT_EQ(SplitParts("你好世界", {3, 100}), (Pieces{"你好世", "界"}));
  EXPECT_EQ(SplitParts("a\x1C\x1C\x1Cz", {2, 100}), (Pieces{"a\x1C\x1C", "\x1Cz"}));
  EXPECT_EQ(SplitParts(std::string(25'001, 'a'), {}).size(), 2u);
  EXPECT_EQ(SplitParts(std::string(25'000, 'a'), {}).size(), 1u);
}

// Kimi K3's pattern for a backtracking engine. ICU's own \s lacks U+000B and U+0085, hence White_Space.
constexpr const char* kPattern =
    R"([\p{Script=Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Script=Han}]]*[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Script=Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Script=Han}]]+[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Script=Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+)"
    R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";

std::vector<std::string> PiecesOfRegex(icu::RegexPattern& pattern, const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern.matcher(wide, status));
  std::vector<std::string> pieces;
  while (U_SUCCESS(status) && matcher->find()) matcher->group(status).toUTF8String(pieces.emplace_back());
  EXPECT_TRUE(U_SUCCESS(status));
  return pieces;
}

TEST(Pretokenizer, AgreesWithARegexEngineOnRandomText) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where;
  const std::unique_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(kPattern), where, status));
  ASSERT_TRUE(U_SUCCESS(status)) << u_errorName(status) << " at " << where.offset;
  const std::string_view fragments[] = {
      "a",      "b",      "A",    "Z",      "é",   "É",    "ǅ",          "ʰ",      "한",      "あ",     "中",
      "字",     "々",     "〇",   "⺀",     "1",   "٣",    "Ⅷ",          "½",      "\u0301",  "\u0903", "\u20DD",
      " ",      "  ",     "\t",   "\n",     "\r",  "\r\n", "\v",         "\u0085", "\u00A0",  "\u2028", "\u3000",
      "\u200B", "\uFEFF", "\x1C", "!",      "...", "'",    "'s",         "'LL",    "'\u017F", "'D",     "🙂",
      "$",      "_",      "-",    "\u200D", "<|",  "|>",   "\U00020000", "\u16FE", "\u00AD"};
  Random random(7);
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (unsigned n = random.Below(12); n > 0; --n) text += fragments[random.Below(std::size(fragments))];
    const Pieces got = SplitPieces(text);
    ASSERT_EQ(std::vector<std::string>(got.begin(), got.end()), PiecesOfRegex(*pattern, text)) << text;
  }
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (unsigned n = random.Below(8); n > 0; --n) {
      char32_t c = random.Below(0x11000);
      if (random.Below(16) == 0) c = random.Below(0x110000);
      if (c == 0 || (c >= 0xD800 && c < 0xE000)) c = U' ';
      AppendUtf8(c, &text);
      text += fragments[random.Below(std::size(fragments))];
    }
    const Pieces got = SplitPieces(text);
    ASSERT_EQ(std::vector<std::string>(got.begin(), got.end()), PiecesOfRegex(*pattern, text)) << text;
  }
}

TEST(Pretokenizer, EveryByteIsInExactlyOnePiece) {
  Random random(8);
  for (int round = 0; round < 5'000; ++round) {
    std::string text;
    for (unsigned n = random.Below(40); n > 0; --n) text.push_back(static_cast<char>(random.Below(256)));
    std::string joined;
    for (const std::string_view piece : SplitPieces(text)) {
      ASSERT_FALSE(piece.empty());
      joined += piece;
    }
    ASSERT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace deltafin::test
