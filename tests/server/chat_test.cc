// Chats over HTTP: the model's own answers, whole and streamed, in all three APIs.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "http_client.h"
#include "running_server.h"
#include "support/test_data.h"
#include "text/utf8.h"

namespace deltafin {
namespace {

using Json = nlohmann::ordered_json;
using test::Post;
using test::Reply;

class Chats : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<test::RunningServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  static Json Ask(const std::string& path, const Json& body, int status = 200) {
    const Reply reply = Post(server_->port(), path, body.dump());
    EXPECT_EQ(reply.status, status) << reply.body;
    return Json::parse(reply.body, nullptr, false);
  }
  static Json Chat(Json body, int status = 200) { return Ask("/v1/chat/completions", body, status); }
  static Json Question(const std::string& text) {
    return {{"messages", {{{"role", "user"}, {"content", text}}}}, {"temperature", 0}, {"reasoning_effort", "none"}};
  }

  struct Streamed {
    std::string reasoning, content, finish;
    Json calls = Json::array(), usage, logprobs = Json::array();
  };
  static Streamed Join(const std::string& body, size_t choice = 0) {
    Streamed s;
    for (const std::string& line : test::DataLines(body)) {
      const Json chunk = Json::parse(line);
      if (chunk.contains("usage") && !chunk["usage"].is_null()) s.usage = chunk["usage"];
      for (const Json& c : chunk["choices"]) {
        if (c["index"] != choice) continue;
        s.content += c["delta"].value("content", "");
        s.reasoning += c["delta"].value("reasoning_content", "");
        for (const Json& call : c["delta"].value("tool_calls", Json::array())) s.calls.push_back(call);
        if (!c["logprobs"].is_null())
          for (const Json& token : c["logprobs"]["content"]) s.logprobs.push_back(token);
        if (!c["finish_reason"].is_null()) s.finish = c["finish_reason"];
      }
    }
    return s;
  }
  static Streamed Stream(Json body) {
    body["stream"] = true;
    body["stream_options"]["include_usage"] = true;
    const Reply reply = Post(server_->port(), "/v1/chat/completions", body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
    EXPECT_NE(reply.body.find("data: [DONE]\n\n"), std::string::npos);
    return Join(reply.body);
  }

  static std::unique_ptr<test::RunningServer> server_;
};
std::unique_ptr<test::RunningServer> Chats::server_;

// The expected ids were written by the reference implementation.
TEST_F(Chats, AnswersAreTheReferencesOnesAndNoMarkerIsInThem) {
  std::ifstream file(test::NanoFolder() + "/expected_greedy.json");
  int chats = 0;
  for (const Json& c : Json::parse(file)) {
    if (c["kind"] != "chat") continue;
    ++chats;
    Json body = Question(c["user"]);
    if (!c["reasoning_effort"].is_null()) body["reasoning_effort"] = c["reasoning_effort"];
    const std::string text = c["text"];
    const std::string think_end = "<|close|>think<|sep|><|open|>response<|sep|>";
    const size_t split = text.find(think_end);
    const size_t from = split == std::string::npos ? 0 : split + think_end.size();
    const std::string content = text.substr(from, text.find("<|close|>response") - from);
    const Json reply = Chat(body);
    const Json message = reply["choices"][0]["message"];
    EXPECT_EQ(message["content"], content);
    EXPECT_EQ(message.value("reasoning_content", ""), split == std::string::npos ? "" : text.substr(0, split));
    EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(reply["usage"]["prompt_tokens"], c["prompt_ids"].size());
    EXPECT_EQ(reply["usage"]["completion_tokens"], c["new_ids"].size() - 1);  // the stop id is not counted
    const Streamed streamed = Stream(body);
    EXPECT_EQ(streamed.content, content);
    EXPECT_EQ(streamed.reasoning, message.value("reasoning_content", ""));
    EXPECT_EQ(streamed.finish, "stop");
    EXPECT_EQ(streamed.usage["completion_tokens"], reply["usage"]["completion_tokens"]);
  }
  EXPECT_EQ(chats, 5);
}

TEST_F(Chats, StreamedAndWholeAnswersAreTheSameWithAnySeed) {
  for (int seed = 0; seed < 8; ++seed) {
    Json body = Question("Tell me something, number " + std::to_string(seed));
    body["temperature"] = 1.3;
    body["seed"] = seed;
    body["max_tokens"] = 40;
    body["reasoning_effort"] = seed % 2 == 0 ? "none" : "low";
    body["logprobs"] = true;
    body["top_logprobs"] = 2;
    const Json choice = Chat(body)["choices"][0];
    const Streamed streamed = Stream(body);
    const Json content = choice["message"]["content"];
    EXPECT_EQ(streamed.content, content.is_null() ? "" : content.get<std::string>());
    EXPECT_EQ(streamed.reasoning, choice["message"].value("reasoning_content", ""));
    EXPECT_EQ(streamed.finish, choice["finish_reason"]);
    EXPECT_EQ(streamed.logprobs, choice["logprobs"]["content"]);
    EXPECT_EQ(streamed.content.find("<|"), std::string::npos);
    std::string bytes;
    for (const Json& token : choice["logprobs"]["content"]) {
      for (const Json& byte : token["bytes"]) bytes.push_back(static_cast<char>(byte.get<int>()));
      EXPECT_LE(token["logprob"].get<double>(), 0);
      EXPECT_EQ(token["top_logprobs"].size(), 2u);
    }
    if (bytes == ToValidUtf8(bytes)) {
      EXPECT_EQ(bytes, streamed.content);
    }
  }
}

TEST_F(Chats, TheEventsAreTheSameWhereverTheirBytesAreCut) {
  Json body = Question("What is the capital of France?");
  body["stream"] = true;
  const Reply reply = Post(server_->port(), "/v1/chat/completions", body.dump());
  const Streamed whole = Join(reply.body);
  for (size_t cut = 1; cut < reply.body.size(); cut += 23) {
    // As a client that keeps what is not yet a line.
    std::string held, seen;
    for (const std::string& part : {reply.body.substr(0, cut), reply.body.substr(cut)}) {
      held += part;
      const size_t line = held.rfind('\n');
      seen += held.substr(0, line + 1);
      held.erase(0, line + 1);
    }
    EXPECT_EQ(Join(seen).content, whole.content);
  }
  EXPECT_EQ(whole.content, "The capital of France is Paris.");
}

TEST_F(Chats, StopStringsEndTheAnswerAndAreNotInIt) {
  Json body = Question("What is the capital of France?");
  body["stop"] = {"is Pa", "nothing"};
  EXPECT_EQ(Chat(body)["choices"][0]["message"]["content"], "The capital of France ");
  EXPECT_EQ(Stream(body).content, "The capital of France ");
  EXPECT_EQ(Stream(body).finish, "stop");
}

TEST_F(Chats, LimitsEndItWithLength) {
  Json body = Question("Name the planets of the solar system.");
  for (const char* field : {"max_tokens", "max_completion_tokens"}) {
    Json limited = body;
    limited[field] = 5;
    const Json reply = Chat(limited);
    EXPECT_EQ(reply["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(reply["usage"]["completion_tokens"], 5);
  }
  // Cut inside the thoughts: what there is are thoughts.
  body["reasoning_effort"] = "high";
  body["max_tokens"] = 2;
  body["messages"][0]["content"] = "What is 12 + 30?";
  const Json reply = Chat(body);
  EXPECT_TRUE(reply["choices"][0]["message"]["content"].is_null());
  EXPECT_FALSE(reply["choices"][0]["message"]["reasoning_content"].empty());
  EXPECT_EQ(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
}

TEST_F(Chats, SeveralChoicesReadThePromptOnceAndDiffer) {
  Json body = Question("Tell me a story.");
  body["n"] = 4;
  body["temperature"] = 1.5;
  body["seed"] = 5;
  body["max_tokens"] = 12;
  const Json reply = Chat(body);
  ASSERT_EQ(reply["choices"].size(), 4u);
  EXPECT_NE(reply["choices"][0]["message"], reply["choices"][1]["message"]);
  body["stream"] = true;
  const Reply streamed = Post(server_->port(), "/v1/chat/completions", body.dump());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Join(streamed.body, i).content, reply["choices"][i]["message"]["content"]);
}

TEST_F(Chats, TheNextTurnFindsTheLastOneKept) {
  Json body = Question("What is the capital of Japan?");
  const Json first = Chat(body);
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "And of France?"}});
  const Json second = Chat(body);
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"]);
}

TEST(Restart, ANewServerReadsOnlyWhatIsNew) {
  const test::TempFolder folder;
  Json body = {{"messages", {{{"role", "user"}, {"content", "What is the capital of Japan?"}}}},
               {"temperature", 0},
               {"reasoning_effort", "none"}};
  const auto ask = [&](const std::string& kept) {
    const test::RunningServer server({}, 2048, kept);
    return Json::parse(Post(server.port(), "/v1/chat/completions", body.dump()).body);
  };
  const Json first = ask(folder.path() + "/kept");
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "And of France?"}});
  const Json anew = ask("");
  const Json second = ask(folder.path() + "/kept");
  EXPECT_EQ(anew["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"]);
  EXPECT_EQ(second["choices"], anew["choices"]);
}

TEST_F(Chats, SchemasAreKeptToWholeOrStreamedAndWhenTheLimitEndsThem) {
  const Json schema = {
      {"type", "object"},
      {"properties",
       {{"name", {{"type", "string"}, {"maxLength", 12}}},
        {"planets",
         {{"type", "array"}, {"minItems", 1}, {"maxItems", 3}, {"items", {{"type", "string"}, {"maxLength", 5}}}}},
        {"size", {{"enum", {"small", "large"}}}}}},
      {"required", {"name", "planets", "size"}},
      {"additionalProperties", false}};
  for (int seed = 0; seed < 4; ++seed) {
    Json body = Question("Describe the solar system as JSON.");
    body["temperature"] = 1;
    body["seed"] = seed;
    body["reasoning_effort"] = seed % 2 == 0 ? "none" : "low";
    body["max_tokens"] = 110;
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "system"}, {"schema", schema}}}};
    const Json choice = Chat(body)["choices"][0];
    const Json value = Json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(value.is_object()) << choice;
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_TRUE(value["planets"].is_array() && !value["planets"].empty() && value["planets"].size() <= 3);
    EXPECT_TRUE(value["size"] == "small" || value["size"] == "large");
    EXPECT_EQ(Stream(body).content, choice["message"]["content"]);
  }
  Json small = Question("x");
  small["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "s"}, {"schema", schema}}}};
  small["max_tokens"] = 10;
  EXPECT_EQ(Chat(small, 400)["error"]["param"], "max_tokens");
  small["max_completion_tokens"] = 10;
  EXPECT_EQ(Chat(small, 400)["error"]["param"], "max_completion_tokens");
  small.erase("max_completion_tokens");
  const Json other = {{"input", "x"},
                      {"max_output_tokens", 10},
                      {"text", {{"format", {{"type", "json_schema"}, {"name", "s"}, {"schema", schema}}}}}};
  EXPECT_EQ(Json::parse(Post(server_->port(), "/v1/responses", other.dump()).body)["error"]["param"],
            "max_output_tokens");
  small["response_format"] = {{"type", "json_object"}};
  small["max_tokens"] = 60;
  EXPECT_TRUE(Json::parse(Chat(small)["choices"][0]["message"]["content"].get<std::string>()).is_object());
  small["response_format"] = {{"type", "json_schema"},
                              {"json_schema", {{"name", "s"}, {"schema", {{"not", Json::object()}}}}}};
  EXPECT_EQ(Chat(small, 400)["error"]["param"], "response_format");
}

Json WeatherTool(const char* name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"city", {{"type", "string"}, {"enum", {"Paris", "Rome"}}}},
                {"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 5}}}}},
              {"required", {"city", "days"}}}}}}};
}

TEST_F(Chats, CallsThatAreRequiredAreMade) {
  for (int seed = 0; seed < 3; ++seed) {
    Json body = Question("How is the weather?");
    body["temperature"] = 1;
    body["seed"] = seed;
    body["tools"] = {WeatherTool("weather"), WeatherTool("forecast")};
    body["tool_choice"] = "required";
    body["max_tokens"] = 400;
    body["parallel_tool_calls"] = seed % 2 == 0;
    const Json choice = Chat(body)["choices"][0];
    ASSERT_TRUE(choice["message"].contains("tool_calls")) << choice;
    const Json calls = choice["message"]["tool_calls"];
    if (seed % 2 == 1) {
      EXPECT_EQ(calls.size(), 1u);
    }
    for (const Json& call : calls) {
      const Json arguments = Json::parse(call["function"]["arguments"].get<std::string>());
      EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome");
      EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 5);
    }
    const Streamed streamed = Stream(body);
    ASSERT_EQ(streamed.calls.size(), calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(streamed.calls[i]["function"], calls[i]["function"]);
      EXPECT_EQ(streamed.calls[i]["index"], i);
    }
    body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "forecast"}}}};
    const Json named = Chat(body)["choices"][0]["message"]["tool_calls"];
    ASSERT_EQ(named.size(), 1u);
    EXPECT_EQ(named[0]["function"]["name"], "forecast");
  }
}

TEST_F(Chats, AStrictToolHasItsArgumentsEnforcedAlsoWhereCallsAreFree) {
  Json tool = WeatherTool("weather");
  tool["function"]["strict"] = true;
  Json body = Question("How is the weather?");
  body["tools"] = {tool};
  body["temperature"] = 1;
  body["max_tokens"] = 400;
  // The model of these tests seldom calls of itself: its text is made to end at once, and elements to be opened.
  const ChatMarkers markers = *Tokenizer::Load(test::NanoFolder())->chat_markers();
  body["logit_bias"] = {{std::to_string(markers.close), 50}, {std::to_string(markers.open), 100}};
  for (int seed = 0; seed < 4; ++seed) {
    body["seed"] = seed;
    const Json choice = Chat(body)["choices"][0];
    ASSERT_TRUE(choice["message"].contains("tool_calls")) << choice;
    for (const Json& call : choice["message"]["tool_calls"]) {
      const Json arguments = Json::parse(call["function"]["arguments"].get<std::string>());
      EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome");
      EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 5);
    }
  }
  // Without the bias it may answer as it likes.
  body.erase("logit_bias");
  body["temperature"] = 0;
  Json free = body;
  free["tools"][0]["function"]["strict"] = false;
  EXPECT_EQ(Chat(body)["choices"][0]["message"]["content"], Chat(free)["choices"][0]["message"]["content"]);
  // What cannot be enforced is refused, not taken and ignored.
  body["tools"][0]["function"]["parameters"]["properties"]["days"] = {{"type", "integer"}, {"multipleOf", 3}};
  EXPECT_EQ(Chat(body, 400)["error"]["param"], "tools");
}

TEST_F(Chats, CompletionsContinueTextAndEchoAndScoreIt) {
  Json body = {{"prompt", "The capital of France is"}, {"temperature", 0}, {"max_tokens", 40}};
  const Json reply = Ask("/v1/completions", body);
  EXPECT_EQ(reply["choices"][0]["text"].get<std::string>().rfind(" Paris.", 0), 0u) << reply;
  body["max_tokens"] = 2;
  body["echo"] = true;
  body["logprobs"] = 1;
  const Json echoed = Ask("/v1/completions", body)["choices"][0];
  EXPECT_EQ(echoed["text"], "The capital of France is Paris.");
  EXPECT_EQ(echoed["logprobs"]["tokens"].size(), 7u);
  EXPECT_TRUE(echoed["logprobs"]["token_logprobs"][0].is_null());
  std::string joined;
  for (const Json& token : echoed["logprobs"]["tokens"]) joined += token.get<std::string>();
  EXPECT_EQ(joined, echoed["text"]);
  // The same scores, without anything new.
  body["max_tokens"] = 0;
  const Json scored = Ask("/v1/completions", body)["choices"][0];
  EXPECT_EQ(scored["text"], "The capital of France is");
  for (size_t i = 1; i < 5; ++i)
    EXPECT_EQ(scored["logprobs"]["token_logprobs"][i], echoed["logprobs"]["token_logprobs"][i]);
  const Json ids = Ask("/v1/tokenize", {{"text", "The capital of France is"}})["tokens"];
  EXPECT_EQ(ids, Json({398, 427, 272, 1688, 263}));
  EXPECT_EQ(Ask("/v1/detokenize", {{"tokens", ids}})["text"], "The capital of France is");
  Json several = {{"temperature", 0}, {"max_tokens", 3}};
  several["prompt"] = Json::array({"The capital of France is", "7 + 8 ="});
  const Json both = Ask("/v1/completions", several);
  ASSERT_EQ(both["choices"].size(), 2u);
  EXPECT_EQ(both["choices"][1]["text"].get<std::string>().rfind(" 15", 0), 0u) << both;
  several["stream"] = true;
  const Reply streamed = Post(server_->port(), "/v1/completions", several.dump());
  std::string texts[2];
  for (const std::string& line : test::DataLines(streamed.body)) {
    const Json chunk = Json::parse(line);
    for (const Json& c : chunk["choices"]) texts[c["index"].get<size_t>()] += c["text"].get<std::string>();
  }
  EXPECT_EQ(texts[0], both["choices"][0]["text"]);
  EXPECT_EQ(texts[1], both["choices"][1]["text"]);
}

TEST_F(Chats, ResponsesAreWholeAndStreamedTheSame) {
  Json body = {{"input", "What is the capital of France?"}, {"temperature", 0}, {"reasoning", {{"effort", "none"}}}};
  const Json reply = Ask("/v1/responses", body);
  EXPECT_EQ(reply["status"], "completed");
  EXPECT_EQ(reply["output"][0]["content"][0]["text"], "The capital of France is Paris.");
  body["stream"] = true;
  const Reply streamed = Post(server_->port(), "/v1/responses", body.dump());
  std::string text;
  int64_t next = 0;
  Json last;
  for (const std::string& line : test::DataLines(streamed.body)) {
    last = Json::parse(line);
    EXPECT_EQ(last["sequence_number"], next++);
    if (last["type"] == "response.output_text.delta") text += last["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "The capital of France is Paris.");
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(last["response"]["output"][0]["content"], reply["output"][0]["content"]);
  EXPECT_EQ(last["response"]["usage"]["output_tokens"], reply["usage"]["output_tokens"]);
}

TEST_F(Chats, MessagesAreWholeAndStreamedTheSame) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "What is 12 + 30?"}}}},
               {"max_tokens", 100},
               {"temperature", 0},
               {"thinking", {{"type", "enabled"}, {"budget_tokens", 5000}}}};
  const Json reply = Ask("/v1/messages", body);
  ASSERT_EQ(reply["content"].size(), 2u) << reply;
  EXPECT_EQ(reply["content"][0]["type"], "thinking");
  EXPECT_EQ(reply["content"][1]["text"], "42");
  EXPECT_EQ(reply["stop_reason"], "end_turn");
  body["stream"] = true;
  const Reply streamed = Post(server_->port(), "/v1/messages", body.dump());
  std::string thinking, text;
  Json last;
  for (const std::string& line : test::DataLines(streamed.body)) {
    last = Json::parse(line);
    if (last["type"] != "content_block_delta") continue;
    thinking += last["delta"].value("thinking", "");
    text += last["delta"].value("text", "");
  }
  EXPECT_EQ(thinking, reply["content"][0]["thinking"]);
  EXPECT_EQ(text, "42");
  EXPECT_EQ(last["type"], "message_stop");
  body["stop_sequences"] = {"2"};
  body.erase("stream");
  const Json stopped = Ask("/v1/messages", body);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "2");
}

}  // namespace
}  // namespace deltafin
