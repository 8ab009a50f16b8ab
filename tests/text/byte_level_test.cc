// The byte-level tokenizer against recorded ids of many scripts, its scanner against a regular expression engine, and
// files that are no such tokenizer.
#include <gtest/gtest.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "support/test_data.h"
#include "text/byte_level_tokenizer.h"
#include "text/text_test_support.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deltafin::test {
namespace {

const std::string kFile = RepoPath("models/qwen3-nano/tokenizer.json");

const ByteLevelTokenizer& Nano() {
  static const ByteLevelTokenizer tokenizer = ByteLevelTokenizer::Load(kFile).value();
  return tokenizer;
}

std::string Decoded(const ByteLevelTokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.BytesOf(id);
  return bytes;
}

// tests/data/README.md says where the ids come from.
TEST(ByteLevel, AThousandStringsOfManyScriptsHaveTheRecordedIds) {
  const Json cases = *ReadJsonFile(RepoPath("tests/data/qwen3-nano/encode.json"));
  ASSERT_EQ(cases.size(), 1000u);
  for (const Json& entry : cases) {
    const auto text = entry["text"].get<std::string>();
    const std::vector<TokenId> ids = Nano().Encode(text);
    EXPECT_EQ(ids, entry["ids"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(Decoded(Nano(), ids), ToNormalFormC(text));
  }
}

TEST(ByteLevel, IdsOfAddedTokensStandForNoText) {
  EXPECT_EQ(Nano().text_count(), 4064);
  EXPECT_EQ(Nano().token_count(), 4067);
  for (const TokenId id : {4064, 4066, 4067, -1}) {
    EXPECT_FALSE(Nano().IsText(id));
    EXPECT_EQ(Nano().BytesOf(id), "");
  }
  EXPECT_GT(Nano().Encode("<|endoftext|>").size(), 1u) << "a spelling is ordinary text";
}

TEST(ByteLevel, AnyBytesComeBack) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text = "\xFF";  // ill-formed: nothing is normalised
    for (unsigned n = random.Below(40); n > 0; --n) text.push_back(static_cast<char>(random.Below(256)));
    ASSERT_EQ(Decoded(Nano(), Nano().Encode(text)), text);
  }
  EXPECT_TRUE(Nano().Encode("").empty());
}

TEST(ByteLevel, ALongPieceIsMergedInLittleTime) {
  const std::string text(300'000, 'a');
  EXPECT_EQ(Decoded(Nano(), Nano().Encode(text)), text);
}

TEST(NormalFormC, ComposesAndLeavesTheRest) {
  EXPECT_EQ(ToNormalFormC("e\u0301"), "\u00E9");
  EXPECT_EQ(ToNormalFormC("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(ToNormalFormC("\u212B"), "\u00C5");
  EXPECT_EQ(ToNormalFormC("plain"), "plain");
  EXPECT_EQ(ToNormalFormC("e\u0301\xFF"), "e\u0301\xFF");
}

// ICU's own \s lacks U+000B and U+0085, hence White_Space.
std::string PatternForIcu() {
  std::string pattern = kByteLevelPattern;
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = pattern.find(from, at)) != std::string::npos; at += to.size())
      pattern.replace(at, from.size(), to);
  };
  replace("\\s", "\\p{White_Space}");
  replace("\\S", "\\P{White_Space}");
  return pattern;
}

std::vector<std::string> PiecesOfRegex(icu::RegexPattern& pattern, const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern.matcher(wide, status));
  std::vector<std::string> pieces;
  while (U_SUCCESS(status) && matcher->find()) matcher->group(status).toUTF8String(pieces.emplace_back());
  EXPECT_TRUE(U_SUCCESS(status));
  return pieces;
}

TEST(ByteLevelScanner, AgreesWithARegexEngineOnRandomText) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where;
  const std::unique_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(PatternForIcu()), where, status));
  ASSERT_TRUE(U_SUCCESS(status)) << u_errorName(status) << " at " << where.offset;
  const std::string_view fragments[] = {"a",      "B",      "\u00E9",  "\u01C5",     "\u02B0",      "\uD55C", "\u4E2D",
                                        "1",      "\u0663", "\u00BD",  "\u0301",     " ",           "  ",     "\t",
                                        "\n",     "\r",     "\r\n",    "\v",         "\u0085",      "\u00A0", "\u2028",
                                        "\u3000", "!",      "...",     "'",          "'s",          "'LL",    "'\u017F",
                                        "'D",     "'re",    "'vE",     "'x",         "\U0001F642",  "$_",     "-",
                                        "\u200B", "<|",     "\u0903a", "\U00020000", "\u200D\u0301"};
  Random random(9);
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (unsigned n = random.Below(12); n > 0; --n) {
      text += fragments[random.Below(std::size(fragments))];
      char32_t c = random.Below(0x11000);
      if (c == 0 || (c >= 0xD800 && c < 0xE000)) c = U' ';
      if (random.Below(3) == 0) AppendUtf8(c, &text);
    }
    const std::vector<std::string_view> got = ByteLevelPieces(text);
    ASSERT_EQ(std::vector<std::string>(got.begin(), got.end()), PiecesOfRegex(*pattern, text)) << text;
  }
}

struct Mutant {
  const char* name;
  const char* from;
  const char* to;
  const char* says;
};

class ByteLevelMutant : public testing::TestWithParam<Mutant> {};

TEST_P(ByteLevelMutant, IsRefusedAndNamed) {
  std::string text = *ReadWholeFile(kFile, 1 << 20);
  const Mutant& m = GetParam();
  const size_t at = text.find(m.from);
  ASSERT_NE(at, std::string::npos) << m.from;
  const Result<ByteLevelParts> parsed = ParseByteLevelFile(text.replace(at, std::string(m.from).size(), m.to), "file");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message().find(m.says), std::string::npos) << parsed.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, ByteLevelMutant,
    testing::Values(
        Mutant{"Model", "\"BPE\"", "\"Unigram\"", "model/type"},
        Mutant{"Normaliser", "\"NFC\"", "\"NFKC\"", "normalizer"},
        Mutant{"Pattern", "\\\\p{N}|", "\\\\p{N}{1,3}|", "Regex"},
        Mutant{"Behaviour", "\"Isolated\"", "\"Removed\"", "behavior"},
        Mutant{"Inverted", "\"invert\": false", "\"invert\": true", "invert"},
        Mutant{"Prefix", "\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space"},
        Mutant{"Dropout", "\"dropout\": null", "\"dropout\": 0.1", "dropout"},
        Mutant{"Suffix", "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"", "end_of_word_suffix"},
        Mutant{"Bytes", "\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback"},
        Mutant{"Merges", "\"ignore_merges\": false", "\"ignore_merges\": true", "ignore_merges"},
        Mutant{"Truncated", "\"truncation\": null", "\"truncation\": {\"max_length\": 3}", "truncation"},
        Mutant{"TokenTwice", "\"vocab\": {", "\"vocab\": {\"!\": 0,", "twice"},
        Mutant{"IdTwice", "\"\\\"\": 1,", "\"\\\"\": 0,", "twice"},
        Mutant{"IdTooLarge", "\"!\": 0,", "\"!\": 5000,", "ids from 0"},
        Mutant{"IdHuge", "\"!\": 0,", "\"!\": 99999999999,", "ids from 0"},
        Mutant{"IdNegative", "\"!\": 0,", "\"!\": -1,", "ids from 0"},
        Mutant{"IdText", "\"!\": 0,", "\"!\": \"0\",", "ids from 0"},
        Mutant{"NoByte", "\"!\": 0,", "\"!!!!!!!!\": 0,", "no token for the byte 33"},
        Mutant{"NoSpelling", "\"!\": 0,", "\"\xE4\xB8\xAD\": 0,", "no spelling of bytes"},
        Mutant{"MergeOfNothing", "\"h e\"", "\"h \"", "model/merges"},
        Mutant{"MergeThatJoinsToNothing", "\"h e\"", "\"! !!!!\"", "model/merges"},
        Mutant{"MergeNumber", "\"h e\"", "7", "model/merges"},
        Mutant{"MergeOfThree", "\"h e\"", "[\"h\", \"e\", \"e\"]", "model/merges"},
        Mutant{"MergeObject", "\"h e\"", "{\"h\": \"e\"}", "model/merges"},
        Mutant{"AddedBelow", "\"id\": 4064", "\"id\": 4063", "added_tokens"},
        Mutant{"AddedTwice", "\"id\": 4065", "\"id\": 4066", "added_tokens"},
        Mutant{"SettingTwice", "\"truncation\": null", "\"truncation\": null, \"truncation\": null", "twice"},
        Mutant{"NoJson", "\"model\":", "\"model\"", "JSON"},
        Mutant{"Deep", "\"truncation\": null", "\"x\": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]", "deeper"}),
    [](const testing::TestParamInfo<Mutant>& info) { return info.param.name; });

TEST(ByteLevelFile, MergesMayBePairsOfTexts) {
  std::string text = *ReadWholeFile(kFile, 1 << 20);
  text.replace(text.find("\"h e\""), 5, "[\"h\", \"e\"]");
  const Result<ByteLevelParts> pairs = ParseByteLevelFile(text, "file");
  ASSERT_TRUE(pairs) << pairs.error().message();
  EXPECT_EQ(ByteLevelTokenizer(std::move(*pairs)).Encode("the hedge"), Nano().Encode("the hedge"));
}

TEST(ByteLevelFile, WhatIsNoObjectIsRefused) {
  for (const char* text : {"", "[]", "7", "{}", "{\"model\":7}", "{\"model\":{\"vocab\":[1,2]}}", "\"x\""})
    EXPECT_FALSE(ParseByteLevelFile(text, "file")) << text;
  EXPECT_FALSE(ByteLevelTokenizer::Load("/nowhere/tokenizer.json"));
}

}  // namespace
}  // namespace deltafin::test
