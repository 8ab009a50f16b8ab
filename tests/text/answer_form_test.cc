// Whatever a model would like to write, what it may write parses and satisfies the schema, at any length limit.
#include "text/answer_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "schema_check.h"
#include "text_test_support.h"

namespace deltafin {
namespace {

using test::OrderedJson;
using test::Random;

const TokenOrder& Order() {
  static const TokenOrder order(test::TinyTokenizer());
  return order;
}

PythonJson Parsed(const std::string& text) { return ParsePythonJson(text).value(); }

ResponseFormat SchemaFormat(const std::string& schema) { return {ResponseFormat::Kind::kJsonSchema, Parsed(schema)}; }

struct Written {
  ParsedResponse response;
  int64_t tokens = 0;
  bool ended = false, shortened = false;
};

// A model that likes any token as much as any other, but for a taste for what ends things.
Written Write(std::shared_ptr<const AnswerForm> form, ResponseChannel start, uint32_t seed, int64_t limit) {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  Random random(seed);
  AnswerFormWalk walk(std::move(form));
  ResponseParser parser = ResponseParser::Create(tokenizer, start).value();
  Written written;
  std::vector<float> logits(static_cast<size_t>(tokenizer.vocab_size()));
  while (!walk.ended() && written.tokens < limit) {
    for (float& x : logits) x = static_cast<float>(random.Below(1000));
    for (const char* ending : {"\"", "}", "]"}) logits[static_cast<size_t>(tokenizer.EncodeRaw(ending)[0])] += 600;
    if (seed % 2 == 0) logits[static_cast<size_t>(tokenizer.chat_markers()->close)] += 900;
    const Status masked = walk.Mask(logits, limit - written.tokens);
    if (!masked) {
      ADD_FAILURE() << masked.error().message();
      return written;
    }
    TokenId best = -1;
    for (size_t id = 0; id < logits.size(); ++id)
      if (!std::isnan(logits[id]) && (best < 0 || logits[id] > logits[static_cast<size_t>(best)]))
        best = static_cast<TokenId>(id);
    if (best < 0) {
      ADD_FAILURE() << "nothing may come";
      return written;
    }
    walk.Accept(best);
    parser.Append(best);
    ++written.tokens;
  }
  parser.Finish(false);
  written.response = parser.result();
  written.ended = walk.ended();
  written.shortened = walk.shortened();
  return written;
}

TEST(AnswerForm, AnythingWrittenForTwoHundredSchemasParsesAndValidatesAtAnyLimit) {
  int shortened = 0;
  for (uint32_t n = 0; n < 200; ++n) {
    Random random(n);
    const OrderedJson schema = test::InventSchema(random);
    AnswerFormRequest request;
    request.format = SchemaFormat(schema.dump());
    const ResponseChannel start = n % 2 == 0 ? ResponseChannel::kAnswer : ResponseChannel::kReasoning;
    request.start = start;
    const auto form = AnswerForm::Create(Order(), request);
    ASSERT_TRUE(form) << form.error().message() << "\n" << schema.dump(1);
    const int64_t shortest = (*form)->ShortestTokens();
    for (const int64_t limit : {shortest, shortest + 9, shortest + 150}) {
      const Written w = Write(*form, start, n * 31 + static_cast<uint32_t>(limit), std::max(limit, shortest));
      ASSERT_TRUE(w.ended) << "limit " << limit << "\n" << w.response.answer << "\n" << schema.dump(1);
      EXPECT_LE(w.tokens, std::max(limit, shortest));
      const OrderedJson value = OrderedJson::parse(w.response.answer, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << w.response.answer << "\n" << schema.dump(1);
      EXPECT_EQ(test::WhyInvalid(value, schema, schema), "") << w.response.answer << "\n" << schema.dump(1);
      shortened += w.shortened ? 1 : 0;
    }
  }
  EXPECT_GT(shortened, 150);  // at the shortest limit hardly anything is left to choose
}

TEST(AnswerForm, JsonObjectsAreObjects) {
  AnswerFormRequest request;
  request.format.kind = ResponseFormat::Kind::kJsonObject;
  request.start = ResponseChannel::kAnswer;
  const auto form = AnswerForm::Create(Order(), request);
  ASSERT_TRUE(form);
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Written w = Write(*form, ResponseChannel::kAnswer, seed, 300);
    EXPECT_TRUE(OrderedJson::parse(w.response.answer).is_object()) << w.response.answer;
  }
}

TEST(AnswerForm, RequiredCallsAreMadeWithArgumentsOfTheSchema) {
  const OrderedJson schema = OrderedJson::parse(R"({"type": "object", "required": ["city", "days"], "properties": {
      "city": {"type": "string", "enum": ["Paris", "R\"om"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
      "unit": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[CF]$"}]},
      "more": {"type": "array", "items": {"type": "number"}}}})");
  AnswerFormRequest request;
  request.calls = CallsAllowed::kRequired;
  request.tools = {{"get_weather", Parsed(schema.dump()), true}, {"stop \"now\"", PythonJson(), false}};
  for (const bool one : {false, true}) {
    request.one_call = one;
    const auto form = AnswerForm::Create(Order(), request);
    ASSERT_TRUE(form) << form.error().message();
    size_t weather = 0;
    for (uint32_t seed = 0; seed < 60; ++seed) {
      const Written w = Write(*form, ResponseChannel::kReasoning, seed, 600);
      ASSERT_TRUE(w.ended);
      ASSERT_FALSE(w.response.tool_calls.empty());
      if (one) {
        EXPECT_EQ(w.response.tool_calls.size(), 1u);
      }
      for (const ParsedToolCall& call : w.response.tool_calls) {
        EXPECT_TRUE(call.name == "get_weather" || call.name == "stop \"now\"") << call.name;
        if (call.name != "get_weather") continue;
        ++weather;
        EXPECT_EQ(test::WhyInvalid(OrderedJson::parse(call.ArgumentsText()), schema, schema), "")
            << call.ArgumentsText();
      }
    }
    EXPECT_GT(weather, 5u);
  }
}

TEST(AnswerForm, OptionalCallsLeaveTheChoiceAndTheAnswerItsForm) {
  AnswerFormRequest request;
  request.start = ResponseChannel::kAnswer;
  request.calls = CallsAllowed::kOptional;
  request.tools = {{"f", Parsed(R"({"type": "object", "properties": {}})"), false}};
  request.format = SchemaFormat(R"({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})");
  const auto form = AnswerForm::Create(Order(), request);
  ASSERT_TRUE(form);
  size_t with = 0, without = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Written w = Write(*form, ResponseChannel::kAnswer, seed, 300);
    ASSERT_TRUE(w.ended);
    ++(w.response.tool_calls.empty() ? without : with);
    if (w.response.tool_calls.empty() || !w.response.answer.empty()) {
      EXPECT_EQ(OrderedJson::parse(w.response.answer), OrderedJson({{"a", 1}}));
    }
  }
  EXPECT_GT(with, 0u);
  EXPECT_GT(without, 0u);
}

TEST(AnswerForm, SchemasThatCannotBeEnforcedAreRefusedNamingTheKeyword) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "object", "properties": {"a": {"not": {}}}})", "#/properties/a: not"},
      {R"({"type": "array", "items": {"type": "number", "multipleOf": 3}})", "#/items: multipleOf"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
      {R"({"allOf": [{"type": "integer"}, {"minimum": 3}]})", "allOf"},
      {R"({"type": "object", "patternProperties": {}})", "patternProperties"},
      {R"({"type": "string", "pattern": "(?=a)b"})", "look-around"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "escape"},
      {R"({"type": "string", "format": "hostname"})", "format"},
      {R"({"type": "string", "pattern": "a", "minLength": 3})", "together"},
      {R"({"$ref": "https://example.com/x"})", "$ref"},
      {R"({"$ref": "#/$defs/none"})", "$ref"},
      {R"({"$ref": "#"})", "itself"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no number"},
      {R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4})", "no number"},
      {R"({"type": "text"})", "type"},
      {R"({"enum": []})", "enum"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "never ends"},
      {R"(false)", "expected an object"},
  };
  for (const auto& [schema, named] : cases) {
    AnswerFormRequest request;
    request.format = SchemaFormat(schema);
    const auto form = AnswerForm::Create(Order(), request);
    ASSERT_FALSE(form) << schema;
    EXPECT_EQ(form.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(form.error().message().find(named), std::string::npos) << schema << ": " << form.error().message();
  }
}

TEST(AnswerForm, BranchesThatExcludeOneAnotherMayBeOneOf) {
  AnswerFormRequest request;
  request.start = ResponseChannel::kAnswer;
  request.format = SchemaFormat(
      R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
                    {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}, {"type": "null"}]})");
  EXPECT_TRUE(AnswerForm::Create(Order(), request));
}

TEST(NumberRange, KnowsWhetherATextCanStillBecomeANumberOfIt) {
  const NumberRange tens{.least = 17, .most = 23, .whole = true};
  EXPECT_EQ(tens.Missing(""), 2);
  EXPECT_EQ(tens.Missing("1"), 1);
  EXPECT_EQ(tens.Missing("17"), 0);
  EXPECT_EQ(tens.Missing("16"), std::nullopt);
  EXPECT_EQ(tens.Missing("3"), std::nullopt);
  EXPECT_EQ(tens.Missing("-"), std::nullopt);
  EXPECT_EQ(tens.Missing("020"), std::nullopt);
  const NumberRange narrow{.least = -0.3, .most = -0.29};
  EXPECT_EQ(narrow.Missing(""), 4);      // -0.3
  EXPECT_EQ(narrow.Missing("-0.2"), 1);  // 9
  EXPECT_EQ(narrow.Missing("-0.28"), std::nullopt);
  const NumberRange open{.least = 1, .most = 2, .least_excluded = true, .most_excluded = true};
  EXPECT_EQ(open.Missing("1"), 2);
  EXPECT_EQ(open.Missing("1."), 1);
  EXPECT_EQ(open.Missing("2"), std::nullopt);
  EXPECT_EQ(open.Missing("1.0"), 1);
}

}  // namespace
}  // namespace deltafin
