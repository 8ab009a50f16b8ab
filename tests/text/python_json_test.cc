#include "text/python_json.h"

#include <gtest/gtest.h>

#include <cstring>

#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

std::string Spaced(std::string_view text) {
  const auto value = ParsePythonJson(text);
  return value ? DumpPythonJson(*value, PythonJsonStyle::kSpaced) : "refused: " + value.error().message();
}

std::string Sorted(std::string_view text) {
  return DumpPythonJson(ParsePythonJson(text).value(), PythonJsonStyle::kCompactSorted);
}

TEST(PythonJson, NumbersAreWrittenAsPythonDoes) {
  // Right column: json.dumps(json.loads(left)) of Python 3.11.
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},
      {"-0", "0"},
      {"1234567890123456789012345678901234567890", "1234567890123456789012345678901234567890"},
      {"-9007199254740993", "-9007199254740993"},
      {"1.0", "1.0"},
      {"21.50", "21.5"},
      {"1e3", "1000.0"},
      {"1E+2", "100.0"},
      {"-0.0", "-0.0"},
      {"0e0", "0.0"},
      {"0.1", "0.1"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"0.000012345", "1.2345e-05"},
      {"1e15", "1000000000000000.0"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1.5e300", "1.5e+300"},
      {"1E400", "Infinity"},
      {"-1e400", "-Infinity"},
      {"1e99999999999999999999999", "Infinity"},
      {"1e-400", "0.0"},
      {"-1e-99999999999999999999999", "-0.0"},
      {"5e-324", "5e-324"},
      {"2.2250738585072014e-308", "2.2250738585072014e-308"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"100000.0", "100000.0"},
      {"3.141592653589793", "3.141592653589793"},
      {"NaN", "NaN"},
      {"Infinity", "Infinity"},
      {"-Infinity", "-Infinity"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Spaced(text), expected) << text;
  // Too long for a double in either direction, and not extreme at all.
  EXPECT_EQ(Spaced("0." + std::string(400, '0') + "1e401"), "1.0");
  EXPECT_EQ(Spaced("1" + std::string(400, '0') + "e-400"), "1.0");
  EXPECT_EQ(Spaced("1" + std::string(400, '0') + ".0"), "Infinity");
  EXPECT_EQ(Spaced("0." + std::string(400, '0') + "1"), "0.0");
}

TEST(PythonJson, StringsEscapeOnlyWhatPythonEscapes) {
  EXPECT_EQ(Spaced(R"("\"\\\/\b\f\n\r\t\u0000\u001f\u007f\u2028é")"),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7F\u2028é\"");
  EXPECT_EQ(Spaced(R"("\ud83d\ude42")"), "\"🙂\"");
  EXPECT_EQ(Spaced(R"("\uD83D \ude42 \ud83d\u0041 \ud83d\ud83d\ude42")"), "\"\uFFFD \uFFFD \uFFFDA \uFFFD🙂\"");
}

TEST(PythonJson, MembersKeepTheirOrderOrAreSortedAtEveryDepth) {
  EXPECT_EQ(Spaced(R"({"z":1,"a":{"y":[1,{"d":2,"c":3}],"x":null}})"),
            R"({"z": 1, "a": {"y": [1, {"d": 2, "c": 3}], "x": null}})");
  EXPECT_EQ(Sorted(R"({"z": 1, "a": {"y": [1, {"d": 2, "c": 3}], "x": null}})"),
            R"({"a":{"x":null,"y":[1,{"c":3,"d":2}]},"z":1})");
  // By code point: U+FF5A before U+1F642, which UTF-16 would order the other way round.
  EXPECT_EQ(Sorted(R"({"🙂":1,"ｚ":2,"Z":3,"":4})"), R"({"":4,"Z":3,"ｚ":2,"🙂":1})");
  EXPECT_EQ(Spaced("{ }"), "{}");
  EXPECT_EQ(Spaced("[ ]"), "[]");
}

TEST(PythonJson, ARepeatedKeyKeepsItsFirstPlaceAndItsLastValue) {
  EXPECT_EQ(Spaced(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(PythonJson, WhatPythonRefusesIsRefused) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[",
                           "[1,]",
                           "{\"a\":1,}",
                           "{'a':1}",
                           "{a:1}",
                           "{\"a\" 1}",
                           "[1 2]",
                           "01",
                           "-01",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "1e+",
                           "--1",
                           "-",
                           "-NaN",
                           "nan",
                           "True",
                           "nul",
                           "\"",
                           "\"\n\"",
                           "\"\t\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\",
                           "// x\n1",
                           "\xEF\xBB\xBF"
                           "1",
                           "1 2",
                           "[1]]",
                           "\f1",
                           "\xC2\xA0"
                           "1"}) {
    const auto value = ParsePythonJson(text);
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().code(), ErrorCode::kCorrupt) << text;
  }
}

TEST(PythonJson, NestingIsLimited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Spaced(nested(128)), nested(128));
  for (const std::string& text : {nested(129), std::string(1'000'000, '['), std::string(1'000'000, '{')}) {
    EXPECT_FALSE(ParsePythonJson(text).has_value());
  }
  EXPECT_EQ(ParsePythonJson(nested(129)).error().code(), ErrorCode::kUnsupported);
}

TEST(PythonJson, AManyMemberObjectIsNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text.append("\"").append(std::to_string(i)).append("\":0,");
  text.back() = '}';
  EXPECT_EQ(ParsePythonJson(text).value().members.size(), 200'000u);
}

TEST(PythonJson, DoublesSurviveWritingAndReading) {
  Random random(17);
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t bits = (uint64_t{random.Below(1ull << 32)} << 32) | random.Below(1ull << 32);
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (value != value) continue;
    const PythonJson back = ParsePythonJson(PythonFloatText(value)).value();
    ASSERT_EQ(back.kind, PythonJson::Kind::kFloat) << PythonFloatText(value);
    ASSERT_EQ(back.number, value);
  }
}

}  // namespace
}  // namespace deltafin::test
