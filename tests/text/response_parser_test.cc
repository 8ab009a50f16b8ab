// Turns that go wrong, and what streaming promises. The complete turns are in parse_cases_test.cc.
#include "text/response_parser.h"

#include <gtest/gtest.h>

#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

constexpr const char* kEndThink = "<|close|>think<|sep|>";

struct Turn {
  ParsedResponse result;
  std::vector<ResponseEvent> events;
};

Turn ParseIds(std::span<const TokenId> ids, ResponseChannel start = ResponseChannel::kReasoning,
              bool length_limit = false) {
  ResponseParser parser = ResponseParser::Create(TinyTokenizer(), start).value();
  Turn turn;
  for (const TokenId id : ids) {
    for (ResponseEvent& event : parser.Append(id)) turn.events.push_back(std::move(event));
  }
  for (ResponseEvent& event : parser.Finish(length_limit)) turn.events.push_back(std::move(event));
  turn.result = parser.result();
  return turn;
}

// Every marker spelled in `text` is the real id.
Turn Parse(std::string_view text, ResponseChannel start = ResponseChannel::kReasoning, bool length_limit = false) {
  EncodeOptions trusted;
  trusted.allow_special = true;
  return ParseIds(TinyTokenizer().Encode(text, trusted), start, length_limit);
}

std::string Call(std::string_view children) {
  return std::string(kEndThink) + "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>" +
         std::string(children) + "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>";
}

TEST(ResponseParser, OddTurnsAreReadAsSpecified) {
  struct Odd {
    const char* text;
    const char* reasoning;
    const char* answer;
  };
  const Odd turns[] = {
      {"thought<|close|>think<|open|>response<|sep|>reply<|close|>response<|sep|>", "thought", "reply"},
      {"<|open|>think<|sep|>deep<|close|>think<|sep|><|open|>response<|sep|>x", "deep", "x"},
      {"a<|open|>think<|sep|>b", "ab", ""},
      {"<|open|>response<|sep|>plain reply", "", "plain reply"},
      {"r<|close|>think<|sep|>visible<|end_of_msg|>", "r", "visible"},
      {"r<|close|>think<|sep|><|open|>response<|sep|>Hello<|close|>message<|sep|>ignored", "r", "Hello"},
      {"cut inside", "cut inside", ""},
      {"r<|close|>think<|sep|><|open|>response<|sep|>a<|close|>response<|sep|>dropped", "r", "a"},
      {"r<|close|>think<|sep|><|open|>unknown<|sep|>dropped<|close|>unknown<|sep|>also", "r", ""},
      {"r<|close|>other<|sep|>still", "rstill", ""},
      {"r<|sep|>s[EOS]t", "rs", ""},
      {"r<|open|>message role=\"user\"<|sep|>not ours", "r", ""},
      {"r<|close|>think<|end_of_msg|>x", "r", ""},
      {"r<|close|>thi", "r", ""},
      {"r<|close|> think <|sep|><|open|>\nresponse<|sep|>a", "r", "a"},
  };
  for (const Odd& odd : turns) {
    const Turn turn = Parse(odd.text);
    EXPECT_EQ(turn.result.reasoning, odd.reasoning) << odd.text;
    EXPECT_EQ(turn.result.answer, odd.answer) << odd.text;
    EXPECT_TRUE(turn.result.tool_calls.empty()) << odd.text;
  }
}

TEST(ResponseParser, FinishReasonPutsTheLengthLimitFirst) {
  const std::string call = Call("");
  EXPECT_EQ(Parse("x").result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(Parse("x", ResponseChannel::kAnswer, true).result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(Parse(call).result.finish_reason, FinishReason::kToolCalls);
  EXPECT_EQ(Parse(call, ResponseChannel::kReasoning, true).result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(Parse(call, ResponseChannel::kReasoning, true).result.tool_calls.size(), 1u);
}

std::string ArgumentsOf(std::string_view children) {
  const Turn turn = Parse(Call(children));
  return turn.result.tool_calls.size() == 1 ? turn.result.tool_calls[0].ArgumentsText() : "not one call";
}

TEST(ResponseParser, ArgumentsAreTypedTexts) {
  const auto argument = [](std::string_view header, std::string_view value) {
    return "<|open|>argument " + std::string(header) + "<|sep|>" + std::string(value) + "<|close|>argument<|sep|>";
  };
  EXPECT_EQ(ArgumentsOf(""), "{}");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="k" type="string")", " 5 ")), R"({"k": " 5 "})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="k")", "5")), R"({"k": "5"})");
  EXPECT_EQ(ArgumentsOf(argument(R"(type="number" key="k" more="x")", "5.10")), R"({"k": 5.1})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="k" type="number")", "five")), R"({"k": "five"})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="k" type="number")", "[1,2]")), R"({"k": [1, 2]})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="&quot;&amp;quot;" type="string")", "&quot;")), R"({"\"&quot;": "&quot;"})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="a")", "1") + argument(R"(key="b")", "2") + argument(R"(key="a")", "3")),
            R"({"a": "3", "b": "2"})");
  EXPECT_EQ(ArgumentsOf(argument(R"(key="k" type="object")", std::string(100'000, '['))),
            "{\"k\": \"" + std::string(100'000, '[') + "\"}");
}

TEST(ResponseParser, ArgumentsCanBeReadBackHoweverDeepTheyAre) {
  for (const size_t depth : {127, 128, 129}) {
    const std::string value = std::string(depth, '[') + std::string(depth, ']');
    const std::string header = "<|open|>argument key=\"k\" type=\"array\"<|sep|>";
    const std::string arguments = ArgumentsOf(header + value + "<|close|>argument<|sep|>");
    const auto read = ParsePythonJson(arguments);
    ASSERT_TRUE(read.has_value()) << depth;
    EXPECT_EQ(read->members.at(0).value.is_array(), depth == 127) << depth;
  }
}

TEST(ResponseParser, ACallThatIsLeftUnclosedIsDropped) {
  const std::string open = std::string(kEndThink) + "<|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|>";
  EXPECT_TRUE(Parse(open + "<|close|>tools<|sep|><|end_of_msg|>").result.tool_calls.empty());
  EXPECT_TRUE(Parse(open + "<|open|>argument key=\"k\"<|sep|>v<|close|>response<|sep|><|close|>call<|sep|>")
                  .result.tool_calls.empty());
  EXPECT_TRUE(
      Parse(std::string(kEndThink) + "<|open|>call index=\"1\"<|sep|><|close|>call<|sep|>").result.tool_calls.empty());
  EXPECT_TRUE(Parse(std::string(kEndThink) + "<|close|>call<|sep|>").result.tool_calls.empty());
}

TEST(ResponseParser, ACharacterSplitOverTokensArrivesWhole) {
  const std::string emoji = "🙂";
  std::vector<TokenId> ids;
  for (const char c : emoji) ids.push_back(static_cast<unsigned char>(c));
  const Turn whole = ParseIds(ids);
  ASSERT_EQ(whole.events.size(), 1u);
  EXPECT_EQ(whole.events[0].text, "🙂");
  ids.pop_back();
  const Turn cut = ParseIds(ids, ResponseChannel::kReasoning, true);
  EXPECT_EQ(cut.result.reasoning, "\uFFFD");
  // An unfinished character ends where its channel ends.
  ids.push_back(*TinyTokenizer().SpecialId("<|close|>"));
  for (const char c : std::string_view("think")) ids.push_back(c);
  ids.push_back(*TinyTokenizer().SpecialId("<|sep|>"));
  ids.push_back(0x82);
  EXPECT_EQ(ParseIds(ids).result.reasoning, "\uFFFD");
  EXPECT_EQ(ParseIds(ids).result.answer, "\uFFFD");
}

TEST(ResponseParser, AnEndlessHeaderIsBounded) {
  const Turn turn = Parse("r<|close|>think " + std::string(1'000'000, 'x') + "<|sep|>answer");
  EXPECT_EQ(turn.result.reasoning, "r");
  EXPECT_EQ(turn.result.answer, "answer");
}

TEST(ResponseParser, IdsOutsideTheVocabularyAreIgnored) {
  const TokenId beyond = TinyTokenizer().token_count();
  EXPECT_EQ(ParseIds(std::vector<TokenId>{'a', beyond, INT32_MAX, -1, INT32_MIN, 'b'}).result.reasoning, "ab");
}

TEST(ResponseParser, EventsJoinToTheResultOnAnyIds) {
  const std::string_view words[] = {"<|open|>",
                                    "<|close|>",
                                    "<|sep|>",
                                    "think",
                                    "response",
                                    "tools",
                                    "call tool=\"f\"",
                                    "argument key=\"k\" type=\"number\"",
                                    "argument",
                                    "json",
                                    "call",
                                    "1",
                                    "\xF0\x9F",
                                    "\x99\x82",
                                    "x"};
  Random random(23);
  EncodeOptions trusted;
  trusted.allow_special = true;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<TokenId> ids;
    for (unsigned n = random.Below(40); n > 0; --n) {
      const auto word = TinyTokenizer().Encode(words[random.Below(std::size(words))], trusted);
      ids.insert(ids.end(), word.begin(), word.end());
    }
    const Turn turn = ParseIds(ids, random.Below(2) == 0 ? ResponseChannel::kReasoning : ResponseChannel::kAnswer);
    std::string reasoning;
    std::string answer;
    size_t calls = 0;
    for (const ResponseEvent& event : turn.events) {
      if (event.kind == ResponseEvent::Kind::kToolCall) {
        ASSERT_EQ(event.call.ArgumentsText(), turn.result.tool_calls.at(calls++).ArgumentsText());
        continue;
      }
      ASSERT_FALSE(event.text.empty());
      (event.kind == ResponseEvent::Kind::kReasoning ? reasoning : answer) += event.text;
    }
    ASSERT_EQ(reasoning, turn.result.reasoning);
    ASSERT_EQ(answer, turn.result.answer);
    ASSERT_EQ(calls, turn.result.tool_calls.size());
  }
}

}  // namespace
}  // namespace deltafin::test
