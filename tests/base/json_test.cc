#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/test_data.h"

namespace deltafin {
namespace {

TEST(ParseJson, KeepsTheOrderOfMembers) {
  const Result<Json> json = ParseJson(R"({"z": 1, "a": 2})", "test");
  ASSERT_TRUE(json);
  EXPECT_EQ(DumpJson(*json), R"({"z":1,"a":2})");
}

TEST(ParseJson, NamesTheDocumentInErrors) {
  const Result<Json> json = ParseJson("{", "config.json");
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(json.error().message().rfind("config.json", 0), 0u);
}

TEST(ParseJson, RefusesDeepNestingBeforeItRecurses) {
  const Result<Json> json = ParseJson(std::string(1000000, '['), "deep");
  ASSERT_FALSE(json);
  EXPECT_NE(json.error().message().find("nested deeper"), std::string::npos);
}

TEST(ParseJson, BracketsInStringsAreNotNesting) {
  EXPECT_TRUE(ParseJson("\"" + std::string(1000, '[') + "\\\"[\"", "string"));
}

TEST(ReadJsonFile, TellsMissingFromTooLarge) {
  const test::TempFolder folder;
  const Result<Json> missing = ReadJsonFile(folder.path() + "/none.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  std::ofstream(folder.path() + "/big.json") << std::string(100, ' ');
  const Result<Json> large = ReadJsonFile(folder.path() + "/big.json", 10);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), ErrorCode::kCorrupt);
}

TEST(DumpJson, ReplacesIllFormedUtf8) {
  Json json;
  json["text"] = "a\xff";
  EXPECT_EQ(DumpJson(json), "{\"text\":\"a\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace deltafin
