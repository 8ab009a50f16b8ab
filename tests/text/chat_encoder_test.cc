// What the recorded conversations do not cover: safety of user text, and what is refused.
#include "text/chat_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "text/chat_json.h"
#include "text/text_test_support.h"

namespace deltafin::test {
namespace {

using testing::HasSubstr;

Result<ChatPrompt> RenderJson(std::string_view text) {
  DFIN_TRY(const PythonJson json, ParsePythonJson(text));
  DFIN_TRY(const ChatRequest request, ChatRequestFrom(json));
  return RenderChat(request.messages, request.options);
}

void ExpectRefused(std::string_view request, const std::string& reason) {
  const auto prompt = RenderJson(request);
  ASSERT_FALSE(prompt.has_value()) << request;
  EXPECT_EQ(prompt.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(prompt.error().message(), HasSubstr(reason));
}

size_t CountSpecials(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  size_t specials = 0;
  for (const TokenId id : ids) specials += tokenizer.IsSpecial(id) ? 1 : 0;
  return specials;
}

TEST(ChatEncoder, TextInAnyFieldNeverBecomesAControlId) {
  std::string forged;
  const Tokenizer& tokenizer = TinyTokenizer();
  for (TokenId id = tokenizer.base(); id < tokenizer.token_count(); ++id) forged += tokenizer.BytesOf(id);
  PythonJson schema = PythonJson::Object();
  schema.members.push_back({forged, PythonJson::String(forged)});
  PythonJson tools = PythonJson::Array();
  tools.items.push_back(schema);

  ChatMessage system = SystemMessage(forged);
  system.name = forged;
  ChatMessage added = SystemMessage("");
  added.tools = tools;
  ChatMessage user = UserMessage(forged);
  user.name = forged;
  ChatMessage assistant = AssistantMessage(forged, forged);
  assistant.tool_calls = {{forged, forged, schema}, {forged, forged, PythonJson::String(forged)}};
  ChatMessage result = TextMessage(ChatRole::kTool, forged);
  result.tool_name = forged;
  ChatOptions options;
  options.tools = tools;
  options.response_format = {ResponseFormat::Kind::kJsonSchema, schema};
  options.tool_choice = ToolChoice::kRequired;

  const auto prompt = RenderChat({system, added, user, assistant, result}, options).value();
  const auto ids = EncodeSegments(tokenizer, prompt.segments).value();
  size_t trusted = 0;
  for (const ChatSegment& segment : prompt.segments) {
    if (!segment.trusted) continue;
    EXPECT_THAT(segment.text, testing::AnyOf("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"));
    ++trusted;
  }
  EXPECT_EQ(CountSpecials(tokenizer, ids), trusted);
  EXPECT_THAT(JoinSegments(prompt.segments), HasSubstr(forged));
}

TEST(ChatEncoder, TheChannelThatFollowsIsTheOneThePromptOpened) {
  EXPECT_EQ(RenderJson(R"({"messages":[]})")->continues_in, ResponseChannel::kReasoning);
  EXPECT_EQ(RenderJson(R"({"messages":[],"thinking":false})")->continues_in, ResponseChannel::kAnswer);
  const char* partial = R"({"messages":[{"role":"assistant","reasoning_content":"r","content":"c","partial":true}]})";
  EXPECT_EQ(RenderJson(partial)->continues_in, ResponseChannel::kAnswer);
  partial = R"({"messages":[{"role":"assistant","reasoning_content":"r","partial":true}]})";
  EXPECT_EQ(RenderJson(partial)->continues_in, ResponseChannel::kReasoning);
}

TEST(ChatEncoder, APartialMessageWithoutThinkingContinuesTheAnswer) {
  const auto prompt = RenderJson(
      R"({"thinking":false,"messages":[{"role":"assistant","reasoning_content":"r","content":"c","partial":true}]})");
  EXPECT_EQ(JoinSegments(prompt->segments), "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>c");
  EXPECT_EQ(prompt->continues_in, ResponseChannel::kAnswer);
}

TEST(ChatEncoder, PartialIsForTheLastAssistantMessageOnly) {
  ExpectRefused(R"({"messages":[{"role":"assistant","content":"a","partial":true},{"role":"user","content":"b"}]})",
                "partial");
  ExpectRefused(R"({"messages":[{"role":"user","content":"a","partial":true}]})", "partial");
  ExpectRefused(R"({"messages":[{"role":"assistant","tool_calls":[{"name":"f"}],"partial":true}]})", "partial");
}

TEST(ChatEncoder, WrongShapesAreRefusedWithTheirPlace) {
  ExpectRefused("[]", "chat request");
  ExpectRefused("{}", "messages");
  ExpectRefused(R"({"messages":{}})", "messages");
  ExpectRefused(R"({"messages":[1]})", "messages[0]");
  ExpectRefused(R"({"messages":[{"role":"user"},{"content":"x"}]})", "messages[1]: role");
  ExpectRefused(R"({"messages":[{"role":"user","content":5}]})", "messages[0]: content");
  ExpectRefused(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "\"text\"");
  ExpectRefused(R"({"messages":[{"role":"user","content":["x"]}]})", "content");
  ExpectRefused(R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]})", "a name");
  ExpectRefused(R"({"messages":[{"role":"assistant","tool_calls":{}}]})", "tool_calls");
  ExpectRefused(R"({"messages":[],"tools":"x"})", "tools");
  ExpectRefused(R"({"messages":[],"thinking":"yes"})", "thinking");
  ExpectRefused(R"({"messages":[],"thinking_effort":"medium"})", "expected low, high or max, got \"medium\"");
  ExpectRefused(R"({"messages":[],"thinking_effort":3})", "thinking_effort");
}

TEST(ChatEncoder, EffortNamesAreReadAndWritten) {
  for (const char* name : {"low", "high", "max"}) EXPECT_EQ(ToString(ParseThinkingEffort(name).value()), name);
  for (const char* name : {"medium", "", "none", "Low"}) EXPECT_FALSE(ParseThinkingEffort(name).has_value()) << name;
  EXPECT_EQ(ToString(ThinkingEffort::kUnstated), "");
}

TEST(ChatEncoder, DeeplyNestedArgumentTextIsRefusedInsteadOfRenderedDifferently) {
  ChatMessage assistant = AssistantMessage("", "");
  assistant.tool_calls = {
      {std::nullopt, "f", PythonJson::String("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}")}};
  const auto prompt = RenderChat({assistant}, {});
  ASSERT_FALSE(prompt.has_value());
  EXPECT_EQ(prompt.error().code(), ErrorCode::kUnsupported);
}

TEST(ChatEncoder, ImagePromptsAreTrustedAndTypedPlaceholdersTakeTheirTurn) {
  EXPECT_EQ(ImagePrompt(448, 336), "<|media_begin|>image 448x336<|media_content|><|media_pad|><|media_end|>");
  ChatOptions options;
  options.image_prompts = {ImagePrompt(1, 2)};
  ChatMessage message = UserMessage("see <|kimi_image_placeholder|><|media_pad|>");
  const auto prompt = RenderChat({message}, options).value();
  const auto ids = EncodeSegments(TinyTokenizer(), prompt.segments).value();
  EXPECT_EQ(std::ranges::count(ids, *TinyTokenizer().media_pad()), 1);
}

TEST(ChatEncoder, AModelWithoutMarkersRefusesToChat) {
  TokenizerParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
  const Tokenizer tokenizer = Tokenizer::Create(std::move(parts)).value();
  EXPECT_EQ(EncodeSegments(tokenizer, {}).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(ResponseParser::Create(tokenizer, ResponseChannel::kAnswer).error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace deltafin::test
