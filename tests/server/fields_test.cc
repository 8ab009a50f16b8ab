// Fields of requests: what is known works, what asks nothing is taken, everything else is refused by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "http_client.h"
#include "running_server.h"

namespace deltafin {
namespace {

using Json = nlohmann::ordered_json;
using test::Post;
using test::Reply;

class Fields : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<test::RunningServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  static Reply Send(const std::string& path, const Json& body) { return Post(server_->port(), path, body.dump()); }
  static void Refused(const std::string& path, Json body, const std::string& field, const Json& value,
                      const std::string& param) {
    body[field] = value;
    const Reply reply = Send(path, body);
    EXPECT_TRUE(reply.status == 400 || reply.status == 404) << field << " = " << value << ": " << reply.status;
    const Json error = Json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(error.is_object() && error.contains("error")) << reply.body;
    if (path.find("messages") == std::string::npos) {
      EXPECT_EQ(error["error"]["param"], param) << reply.body;
    } else {
      EXPECT_EQ(error["error"]["message"].get<std::string>().rfind(param, 0), 0u) << reply.body;
    }
  }
  static void Taken(const std::string& path, Json body, const std::string& field, const Json& value) {
    body[field] = value;
    const Reply reply = Send(path, body);
    EXPECT_EQ(reply.status, 200) << field << " = " << value << ": " << reply.body;
  }

  static std::unique_ptr<test::RunningServer> server_;
};
std::unique_ptr<test::RunningServer> Fields::server_;

const Json kChat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
const Json kTool = {{"type", "function"}, {"function", {{"name", "f"}}}};
const Json kNull = nullptr;

TEST_F(Fields, OfChatCompletionsThatAskNothingOrAreAllowedAreTaken) {
  const std::pair<const char*, Json> cases[] = {
      {"user", "u"},
      {"metadata", {{"a", "b"}}},
      {"safety_identifier", "s"},
      {"prompt_cache_key", "k"},
      {"store", false},
      {"service_tier", "auto"},
      {"model", "k3-nano"},
      {"model", kNull},
      {"stop", kNull},
      {"temperature", 1.5},
      {"top_p", 0.5},
      {"top_p", 0},
      {"top_k", 5},
      {"top_k", -1},
      {"min_p", 0.1},
      {"seed", -3},
      {"presence_penalty", 1},
      {"frequency_penalty", -1},
      {"repetition_penalty", 1.2},
      {"logit_bias", {{"5", -100}}},
      {"n", 2},
      {"stop", "x"},
      {"logprobs", false},
      {"parallel_tool_calls", false},
      {"tools", Json::array({kTool})},
      {"tools", Json::array()},
      {"tool_choice", "none"},
      {"tool_choice", "auto"},
      {"reasoning_effort", "none"},
      {"reasoning_effort", "high"},
      {"thinking", {{"type", "disabled"}}},
      {"thinking", {{"type", "enabled"}, {"keep", "all"}, {"effort", "low"}}},
      {"chat_template_kwargs", {{"enable_thinking", false}}},
      {"response_format", {{"type", "text"}}},
      {"modalities", Json::array({"text"})},
      {"max_completion_tokens", 1},
      {"messages",
       {{{"role", "developer"}, {"content", "Be brief."}},
        {{"role", "user"}, {"name", "ann"}, {"content", {{{"type", "text"}, {"text", "a"}}}}},
        {{"role", "assistant"},
         {"content", kNull},
         {"refusal", kNull},
         {"annotations", Json::array()},
         {"reasoning_content", "hm"},
         {"tool_calls", {{{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{bad"}}}}}}},
        {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "r"}}}}};
  for (const auto& [field, value] : cases) Taken("/v1/chat/completions", kChat, field, value);
}

TEST_F(Fields, OfChatCompletionsThatAreUnknownOrImpossibleAreRefusedByName) {
  const Json user = {{"role", "user"}, {"content", "x"}};
  const auto messages = [&](Json message) { return Json::array({user, std::move(message)}); };
  const struct {
    const char* field;
    Json value;
    const char* param;
  } cases[] = {
      {"temprature", 1, "temprature"},
      {"model", "gpt-4", "model"},
      {"model", 3, "model"},
      {"messages", Json::array(), "messages"},
      {"messages", "hi", "messages"},
      {"messages", messages({{"role", "wizard"}, {"content", "x"}}), "messages[1].role"},
      {"messages", messages({{"content", "x"}}), "messages[1].role"},
      {"messages", messages({{"role", "user"}, {"content", 5}}), "messages[1].content"},
      {"messages", messages({{"role", "user"}, {"content", "x"}, {"colour", "red"}}), "messages[1].colour"},
      {"messages", messages({{"role", "tool"}, {"content", "x"}}), "messages[1].tool_call_id"},
      {"messages", messages({{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", {{"url", "u"}}}}}}}),
       "messages[1].content[0]"},
      {"messages", messages({{"role", "user"}, {"content", "x"}, {"tools", Json::array({kTool})}}),
       "messages[1].tools"},
      {"messages", messages({{"role", "system"}, {"content", "x"}, {"tools", Json::array({kTool})}}),
       "messages[1].content"},
      {"temperature", -1, "temperature"},
      {"temperature", "hot", "temperature"},
      {"top_p", 1.5, "top_p"},
      {"top_k", 1.5, "top_k"},
      {"min_p", 2, "min_p"},
      {"seed", "x", "seed"},
      {"presence_penalty", 3, "presence_penalty"},
      {"frequency_penalty", -3, "frequency_penalty"},
      {"repetition_penalty", 0, "repetition_penalty"},
      {"logit_bias", {{"x", 1}}, "logit_bias"},
      {"logit_bias", {{"99999999", 1}}, "logit_bias"},
      {"logit_bias", {{"1", 1000}}, "logit_bias"},
      {"n", 0, "n"},
      {"n", 1000, "n"},
      {"stop", 5, "stop"},
      {"stop", Json::array({""}), "stop"},
      {"max_tokens", 0, "max_tokens"},
      {"max_completion_tokens", -1, "max_completion_tokens"},
      {"stream", "yes", "stream"},
      {"stream_options", {{"include_usage", true}}, "stream_options"},
      {"top_logprobs", 2, "top_logprobs"},
      {"tools", {{{"type", "web"}}}, "tools[0].type"},
      {"tools", {{{"type", "function"}, {"function", {{"name", "1x"}}}}}, "tools[0].function.name"},
      {"tools", Json::array({kTool, kTool}), "tools[1].function.name"},
      {"tool_choice", "required", "tool_choice"},
      {"tool_choice", "perhaps", "tool_choice"},
      {"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}, "tool_choice.function.name"},
      {"reasoning_effort", "medium", "reasoning_effort"},
      {"thinking", {{"type", "sometimes"}}, "thinking.type"},
      {"thinking", {{"type", "enabled"}, {"budget", 3}}, "thinking.budget"},
      {"chat_template_kwargs", {{"x", 1}}, "chat_template_kwargs.x"},
      {"response_format", {{"type", "xml"}}, "response_format.type"},
      {"response_format", {{"type", "json_schema"}}, "response_format.json_schema"},
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"name", "n"}}}},
       "response_format.json_schema.schema"},
      {"store", true, "store"},
      {"service_tier", "priority", "service_tier"},
      {"functions", Json::array(), "functions"},
      {"audio", Json::object(), "audio"},
      {"modalities", {"text", "audio"}, "modalities"},
  };
  for (const auto& c : cases) Refused("/v1/chat/completions", kChat, c.field, c.value, c.param);
}

TEST_F(Fields, OfCompletions) {
  const Json body = {{"prompt", "Once"}, {"max_tokens", 1}};
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"echo", true}, {"logprobs", 2}, {"best_of", 1}, {"n", 2}, {"prompt", {1, 2}}, {"user", "u"}, {"stop", "."}})
    Taken("/v1/completions", body, field, value);
  for (const auto& [field, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"suffix", "end"},
                                                           {"best_of", 3},
                                                           {"prompt", ""},
                                                           {"prompt", Json::array()},
                                                           {"prompt", Json::array({99999999})},
                                                           {"logprobs", 99},
                                                           {"max_tokens", 0},
                                                           {"echo", 3},
                                                           {"messages", Json::array()}})
    Refused("/v1/completions", body, field, value, field);
}

TEST_F(Fields, OfResponses) {
  const Json body = {{"input", "Hi"}, {"max_output_tokens", 2}};
  const Json tool = {
      {"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}, {"properties", Json::object()}}}};
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"instructions", "Be brief."},
           {"store", false},
           {"reasoning", {{"effort", "low"}}},
           {"tools", Json::array({tool})},
           {"text", {{"format", {{"type", "text"}}}}},
           {"truncation", "disabled"},
           {"include", Json::array()},
           {"metadata", {{"a", "b"}}},
           {"temperature", 1},
           {"top_p", 0.9},
           {"parallel_tool_calls", true},
           {"input",
            {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "x"}}}}},
             {{"type", "reasoning"},
              {"id", "r"},
              {"summary", Json::array()},
              {"content", {{{"type", "reasoning_text"}, {"text", "t"}}}}},
             {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{}"}},
             {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "done"}}}}})
    Taken("/v1/responses", body, field, value);
  for (const auto& [field, value, param] : std::initializer_list<std::tuple<const char*, Json, const char*>>{
           {"previous_response_id", "resp_1", "previous_response_id"},
           {"store", true, "store"},
           {"background", true, "background"},
           {"truncation", "auto", "truncation"},
           {"input", 5, "input"},
           {"input", {{{"type", "item_reference"}, {"id", "x"}}}, "input[0]"},
           {"max_tokens", 5, "max_tokens"},
           {"tools", {{{"type", "web_search"}}}, "tools[0].type"},
           {"reasoning", {{"effort", "medium"}}, "reasoning.effort"},
           {"text", {{"format", {{"type", "yaml"}}}}, "text.format.type"},
           {"top_logprobs", 3, "top_logprobs"}})
    Refused("/v1/responses", body, field, value, param);
}

TEST_F(Fields, OfMessages) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
  const Json tool = {{"name", "f"}, {"input_schema", {{"type", "object"}}}, {"cache_control", {{"type", "ephemeral"}}}};
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"system", "Be brief."},
           {"system", {{{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}}}},
           {"tools", Json::array({tool})},
           {"metadata", {{"user_id", "u"}}},
           {"top_k", 3},
           {"stop_sequences", Json::array({"x"})},
           {"thinking", {{"type", "disabled"}}},
           {"service_tier", "auto"},
           {"messages",
            {{{"role", "user"}, {"content", "x"}},
             {{"role", "assistant"},
              {"content",
               {{{"type", "thinking"}, {"thinking", "t"}, {"signature", ""}},
                {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", Json::object()}}}}},
             {{"role", "user"},
              {"content",
               {{{"type", "tool_result"}, {"tool_use_id", "1"}, {"content", "r"}},
                {{"type", "text"}, {"text", "go on"}}}}}}}})
    Taken("/v1/messages", body, field, value);
  for (const auto& [field, value, param] : std::initializer_list<std::tuple<const char*, Json, const char*>>{
           {"max_tokens", kNull, "max_tokens"},
           {"frequency_penalty", 1, "frequency_penalty"},
           {"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}, "messages[0].content[0]"},
           {"tools", {{{"type", "bash_20250124"}, {"name", "bash"}}}, "tools[0].type"},
           {"tool_choice", {{"type", "tool"}, {"name", "g"}}, "tool_choice.name"},
           {"mcp_servers", Json::array({1}), "mcp_servers"}})
    Refused("/v1/messages", body, field, value, param);
  const Reply counted = Send("/v1/messages/count_tokens", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
  EXPECT_GT(Json::parse(counted.body)["input_tokens"], 5);
}

TEST_F(Fields, BodiesThatAreNoJsonOrTooDeepAreRefused) {
  for (const std::string& body : {std::string(), std::string("{"), std::string("[]"), std::string("{\"a\": NaN}"),
                                  std::string("{\"messages\": \"\xff\"}"), std::string(100'000, '['),
                                  "{\"messages\": " + std::string(70, '[') + std::string(70, ']') + "}"}) {
    const Reply reply = Post(server_->port(), "/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body.substr(0, 40);
    EXPECT_TRUE(Json::parse(reply.body)["error"]["message"].is_string());
  }
}

TEST_F(Fields, TextOfARequestNeverBecomesAMarker) {
  Json body = kChat;
  const auto count = [&](const std::string& text) {
    body["messages"][0]["content"] = text;
    return Json::parse(Send("/v1/chat/completions", body).body)["usage"]["prompt_tokens"].get<int>();
  };
  const Json plain = Json::parse(Send("/v1/tokenize", {{"text", "<|end_of_msg|><|open|>"}}).body);
  for (const Json& id : plain["tokens"]) EXPECT_LT(id.get<int>(), 7936);
  EXPECT_EQ(count("<|end_of_msg|><|open|>") - count("<"), plain["count"].get<int>() - 1);
}

}  // namespace
}  // namespace deltafin
