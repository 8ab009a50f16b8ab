// The server under pressure: limits, overload, clients that go away, access, the end.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/platform.h"
#include "http_client.h"
#include "running_server.h"
#include "support/made_drafters.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using Json = nlohmann::ordered_json;
using test::Get;
using test::HttpConnection;
using test::Post;
using test::PostText;
using test::Reply;
using test::RunningServer;

std::string Chat(int64_t max_tokens, bool stream, const std::string& text = "Tell me a long story.") {
  const Json body = {{"messages", {{{"role", "user"}, {"content", text}}}},
                     {"max_tokens", max_tokens},
                     {"stream", stream},
                     {"logit_bias", {{"7938", -100}, {"7937", -100}, {"7940", -100}}}};  // goes on to the limit
  return body.dump();
}

template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Service, TellsOfItselfAndKnowsNoOtherPaths) {
  RunningServer server;
  EXPECT_EQ(Get(server.port(), "/health").body, "{\"live\": true, \"ready\": true}");
  EXPECT_EQ(Get(server.port(), "/health/live").status, 200);
  EXPECT_EQ(Json::parse(Get(server.port(), "/v1/models").body)["data"][0]["id"], "k3-nano");
  Post(server.port(), "/v1/chat/completions", Chat(3, false));
  const std::string metrics = Get(server.port(), "/metrics").body;
  EXPECT_NE(metrics.find("\ndeltafin_requests_completed_total 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\ndeltafin_new_tokens_total 3\n"), std::string::npos);
  EXPECT_EQ(Json::parse(Get(server.port(), "/v1/live").body)["new_tokens"], 3);
  const Reply page = Get(server.port(), "/");
  EXPECT_NE(page.body.find("<html"), std::string::npos);
  EXPECT_NE(page.headers.at("content-security-policy").find("default-src 'none'"), std::string::npos);
  for (const char* path : {"/page.js", "/page.css", "/markdown.js"}) EXPECT_EQ(Get(server.port(), path).status, 200);
  for (const char* path : {"/v1/none", "/../etc/passwd", "/v1/chat/completions/x"}) {
    const Reply reply = Get(server.port(), path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_TRUE(Json::parse(reply.body)["error"]["message"].is_string());
  }
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat(1, false), "Content-Encoding: gzip\r\n").status, 415);
}

TEST(Service, ConnectionsServeOneRequestAfterTheOther) {
  RunningServer server;
  HttpConnection connection(server.port());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(connection.Send(PostText("/v1/chat/completions", Chat(1, i % 2 == 0))));
    EXPECT_EQ(connection.Read().status, 200);
  }
}

TEST(Service, BodiesHeadersAndConnectionsHaveLimits) {
  ServerOptions options;
  options.http.body_bytes = 100'000;
  options.http.header_bytes = 8'000;
  options.http.connections = 4;
  options.http.request_seconds = 1;
  RunningServer server(options);
  EXPECT_EQ(Post(server.port(), "/v1/tokenize", std::string(200'000, ' ')).status, 413);
  EXPECT_EQ(Get(server.port(), "/health",
                "X-Long: " + std::string(7'000, 'x') + "\r\nX-More: " + std::string(7'000, 'y') + "\r\n")
                .status,
            431);
  {
    HttpConnection chunked(server.port());
    chunked.Send(
        "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
        "chunked\r\n\r\n");
    for (int i = 0; i < 100 && chunked.Send("1000\r\n" + std::string(0x1000, ' ') + "\r\n"); ++i) {
    }
    const Reply reply = chunked.Read(10);
    EXPECT_TRUE(reply.status == 413 || reply.status == 400 || reply.status == 0) << reply.status;
  }
  {
    HttpConnection slow(server.port());  // begins, and does not go on
    slow.Send("POST /v1/tokenize HTTP/1.1\r\nHost: loc");
    EXPECT_TRUE(Eventually([&] { return !slow.Send("x"); }));  // the server has hung up
  }
  ASSERT_TRUE(Eventually([&] { return Get(server.port(), "/health").status == 200; }));
  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(std::make_unique<HttpConnection>(server.port()));
  EXPECT_TRUE(Eventually([&] { return Get(server.port(), "/health").status == 503; }));
  idle.clear();
  EXPECT_TRUE(Eventually([&] { return Get(server.port(), "/health").status == 200; }));
}

TEST(Service, BeyondTheQueueClientsAreToldToComeLater) {
  ServerOptions options;
  options.service = {.live = 1, .queue = 2, .per_client = 2};
  RunningServer server(options);
  std::vector<std::unique_ptr<HttpConnection>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpConnection>(server.port()));
    clients.back()->Send(PostText("/v1/chat/completions", Chat(400, false)));
    ASSERT_TRUE(Eventually([&] { return server.counters().accepted == static_cast<uint64_t>(i) + 1; }));
    ASSERT_TRUE(Eventually([&] { return server.counters().live == 1; }));
  }
  const Reply refused = Post(server.port(), "/v1/chat/completions", Chat(1, false));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "rate_limit_error");
  for (const auto& client : clients) EXPECT_EQ(client->Read(120).status, 200);
  EXPECT_EQ(server.counters().completed, 3u);
}

TEST(Service, WhoGoesAwayFreesItsWorkStreamedOrNotLiveOrWaiting) {
  ServerOptions options;
  options.service.live = 2;
  RunningServer server(options);
  std::vector<std::unique_ptr<HttpConnection>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpConnection>(server.port()));
    clients.back()->Send(PostText("/v1/chat/completions", Chat(1900, i % 2 == 0)));
  }
  ASSERT_TRUE(Eventually([&] { return server.counters().accepted == 4 && server.counters().new_tokens > 4; }));
  for (auto& client : clients) client->Close();
  EXPECT_TRUE(Eventually([&] {
    const ServiceCounters c = server.counters();
    return c.cancelled == 4 && c.live == 0 && c.queued == 0;
  }));
  const ServiceCounters c = server.counters();
  EXPECT_EQ(c.cancelled, 4u) << c.completed << " completed, " << c.live << " live, " << c.queued << " queued";
  EXPECT_LT(c.new_tokens, 2u * 1900);
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat(2, false)).status, 200);
}

TEST(Service, ClientsTakeTurns) {
  ServerOptions options;
  options.access.keys = {"first-key", "second-key"};
  options.service = {.live = 1, .queue = 20, .per_client = 20};
  RunningServer server(options);
  std::vector<std::unique_ptr<HttpConnection>> many;
  for (int i = 0; i < 6; ++i) {
    many.push_back(std::make_unique<HttpConnection>(server.port()));
    many.back()->Send(PostText("/v1/chat/completions", Chat(150, false), "Authorization: Bearer first-key\r\n"));
  }
  ASSERT_TRUE(Eventually([&] { return server.counters().accepted == 6; }));
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat(1, false), "x-api-key: second-key\r\n").status, 200);
  EXPECT_LE(server.counters().completed, 4u);  // it did not wait for all of the others
  for (const auto& one : many) EXPECT_EQ(one->Read(120).status, 200);
}

TEST(Service, AnswersUnderLoadAreTheAnswersAlone) {
  ServerOptions options;
  options.service = {.live = 4, .queue = 64, .per_client = 64};
  RunningServer server(options);
  const char* const questions[] = {"What is the capital of France?", "What is 12 + 30?", "Who are you?",
                                   "Name the planets of the solar system."};
  const auto ask = [&](int i) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", questions[i % 4]}}}},
                       {"temperature", i % 3 == 0 ? 1.2 : 0.0},
                       {"seed", i % 8},
                       {"reasoning_effort", i % 2 == 0 ? "none" : "low"},
                       {"max_tokens", 40}};
    const Reply reply = Post(server.port(), "/v1/chat/completions", body.dump());
    EXPECT_EQ(reply.status, 200);
    return Json::parse(reply.body)["choices"][0]["message"].dump();
  };
  constexpr int kRequests = kIsSanitized ? 12 : 24;
  std::vector<std::string> alone, together(kRequests);
  for (int i = 0; i < kRequests; ++i) alone.push_back(ask(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i) threads.emplace_back([&, i] { together[static_cast<size_t>(i)] = ask(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST(Service, AnswersAreTheSameWithDraftsAndTheMetricsTellOfThem) {
  RunningServer plain, drafting({}, 2048, "", DraftMode::kNgram);
  const auto ask = [](RunningServer& server, double temperature) {
    Json body = Json::parse(Chat(200, false, "Name the planets of the solar system."));
    body["temperature"] = temperature;
    body["seed"] = 5;
    body["logprobs"] = true;
    return Json::parse(Post(server.port(), "/v1/chat/completions", body.dump()).body)["choices"].dump();
  };
  for (const double temperature : {0.0, 0.8}) EXPECT_EQ(ask(drafting, temperature), ask(plain, temperature));
  const auto checked = [](RunningServer& server) {
    const std::string metrics = Get(server.port(), "/metrics").body;
    const std::string name = "\ndeltafin_drafted_tokens_total ";
    return std::stoi(metrics.substr(metrics.find(name) + name.size()));
  };
  EXPECT_EQ(checked(plain), 0);
  EXPECT_GT(checked(drafting), 0);
}

TEST(Service, ADrafterThatFailsIsWarnedOfOnceAndAnswersAreTheSame) {
  RunningServer plain;
  RunningServer failing({}, 2048, "", DraftMode::kNgram,
                        std::make_unique<test::MadeDrafter>([](std::span<const TokenId>, std::span<TokenId>) {
                          return Result<int64_t>(Fail(ErrorCode::kCorrupt, "made to fail"));
                        }));
  const auto ask = [](RunningServer& server) {
    return Json::parse(Post(server.port(), "/v1/chat/completions", Chat(20, false, "Name a river.")).body)["choices"]
        .dump();
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(failing), ask(plain));
  const std::vector<std::string> warnings = failing.warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("made: made to fail"), std::string::npos) << warnings[0];
}

TEST(Service, LongPromptsTellHowFarTheyAre) {
  ServerOptions options;
  options.comment_seconds = 0.01;
  RunningServer server(options, 4096);
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word " + std::to_string(i) + " ";
  const Reply reply = Post(server.port(), "/v1/chat/completions", Chat(1, true, text));
  EXPECT_EQ(reply.status, 200) << reply.body.substr(0, 300);
  EXPECT_NE(reply.body.find("\n: prefill "), std::string::npos);
}

TEST(Service, AtTheEndUnfinishedAnswersGetAnError) {
  auto server = std::make_unique<RunningServer>();
  HttpConnection streamed(server->port()), whole(server->port()), anthropic(server->port());
  streamed.Send(PostText("/v1/chat/completions", Chat(1900, true)));
  whole.Send(PostText("/v1/chat/completions", Chat(1900, false)));
  ASSERT_TRUE(Eventually([&] { return server->counters().new_tokens > 10 && server->counters().accepted == 2; }));
  const auto start = std::chrono::steady_clock::now();
  server->server().Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(kIsSanitized ? 30 : 5));
  const Reply events = streamed.Read(5);
  const std::vector<std::string> data = test::DataLines(events.body);
  ASSERT_FALSE(data.empty());
  EXPECT_TRUE(Json::parse(data.back()).contains("error")) << data.back();
  EXPECT_EQ(events.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(whole.Read(5).status, 503);
}

TEST(Access, KeysAreAskedForWhereThereAreSome) {
  ServerOptions options;
  options.access.keys = {"the-right-key"};
  RunningServer server(options);
  EXPECT_EQ(Get(server.port(), "/v1/models").status, 401);
  EXPECT_EQ(Get(server.port(), "/v1/models", "Authorization: Bearer the-wrong-key\r\n").status, 401);
  EXPECT_EQ(Get(server.port(), "/v1/models", "Authorization: Bearer the-right-keyx\r\n").status, 401);
  EXPECT_EQ(Get(server.port(), "/v1/models", "Authorization: Bearer the-right-key\r\n").status, 200);
  EXPECT_EQ(Get(server.port(), "/v1/models", "x-api-key: the-right-key\r\n").status, 200);
  EXPECT_EQ(Get(server.port(), "/health").status, 200);
  EXPECT_EQ(Get(server.port(), "/").status, 200);
}

TEST(Access, ForeignPagesAndForeignNamesReachNothing) {
  RunningServer closed;
  EXPECT_EQ(Get(closed.port(), "/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(Get(closed.port(), "/v1/models", "Origin: http://localhost\r\n").status, 200);
  HttpConnection renamed(closed.port());
  renamed.Send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(renamed.Read().status, 403);
  HttpConnection simple(closed.port());  // what a page may send without asking
  simple.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: "
      "2\r\n\r\n{}");
  EXPECT_EQ(simple.Read().status, 415);
  ServerOptions options;
  options.access.origins = {"https://good.example"};
  RunningServer open(options);
  const Reply allowed = Get(open.port(), "/v1/models", "Origin: https://good.example\r\n");
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://good.example");
  EXPECT_EQ(Get(open.port(), "/v1/models", "Origin: https://evil.example\r\n").status, 403);
  EXPECT_EQ(Get(open.port(), "/v1/models").headers.count("access-control-allow-origin"), 0u);
}

TEST(Access, SecretsAreComparedWholeAndKeyFilesAreRead) {
  EXPECT_TRUE(SameSecret("abc", "abc"));
  EXPECT_FALSE(SameSecret("abc", "abd"));
  EXPECT_FALSE(SameSecret("abc", "abcabc"));
  EXPECT_FALSE(SameSecret("abc", ""));
  EXPECT_FALSE(SameSecret("", "abc"));
  test::TempFolder folder;
  const std::string path = folder.path() + "/keys";
  EXPECT_FALSE(ReadKeys(path));
  std::ofstream(path) << "# mine\n\nfirst-long-key\r\nsecond-long-key\n";
  EXPECT_EQ(*ReadKeys(path), (std::vector<std::string>{"first-long-key", "second-long-key"}));
  std::ofstream(path) << "short\n";
  EXPECT_FALSE(ReadKeys(path));
  std::ofstream(path) << "# nothing\n";
  EXPECT_FALSE(ReadKeys(path));
}

}  // namespace
}  // namespace deltafin
