// What a transfer does, and whom it tells the token.
#include "setup/http_client.h"

#include <gtest/gtest.h>

#include "setup/setup_case.h"

namespace deltafin::test {
namespace {

class HttpClientTest : public testing::Test {
 protected:
  Result<HttpResponse> Get(const std::string& path, std::optional<HttpRange> range = {}, std::string token = {}) {
    HttpClientOptions options;
    options.proxy = "none";
    options.stall_seconds = stall_seconds_;
    const auto client = HttpClient::Create(options);
    HttpRequest request;
    request.url = server_.url() + path;
    request.range = range;
    request.token = std::move(token);
    request.sink = [&](Bytes bytes) -> Status {
      body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    };
    return (*client)->Get(request, {});
  }
  static std::string File(const std::string& name) {
    return std::string("/") + HubServer::kRepo + "/resolve/" + HubServer::kCommit + "/" + name;
  }
  void Change(const std::function<void(HubAnswer&)>& change) {
    server_.Disturb([change](const HubRequest& r, HubAnswer& a) {
      if (r.to_content_port || !r.file.ends_with(".safetensors")) change(a);
    });
  }

  HubServer server_{SmallRepository()};
  std::string body_;
  double stall_seconds_ = 5;
};

TEST_F(HttpClientTest, FollowsARedirectAndLeavesTheTokenBehind) {
  const auto response = Get(File("model-1.safetensors"), HttpRange{100, 1000}, "secret");
  ASSERT_TRUE(response) << response.error().message();
  EXPECT_EQ(response->status, 206);
  EXPECT_EQ(response->total_bytes, 300'000u);
  EXPECT_EQ(response->Header("x-repo-commit"), HubServer::kCommit);
  EXPECT_EQ(body_, server_.files().at("model-1.safetensors").substr(100, 1000));
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].authorization, "Bearer secret");
  EXPECT_TRUE(requests[1].to_content_port);
  EXPECT_EQ(requests[1].authorization, "");
}

TEST_F(HttpClientTest, AStatusThatIsNoSuccessIsAnAnswerAndItsBodyIsNotTheFiles) {
  Change([](HubAnswer& a) {
    a.status = 429;
    a.headers["Retry-After"] = "17";
    a.body = "slow down";
  });
  const auto response = Get(File("config.json"));
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 429);
  EXPECT_EQ(response->retry_after, 17.0);
  EXPECT_EQ(response->error_text, "slow down");
  EXPECT_EQ(body_, "");
}

TEST_F(HttpClientTest, ADateInRetryAfterCountsFromTheServersClock) {
  Change([](HubAnswer& a) {
    a.status = 503;
    a.headers["Date"] = "Wed, 21 Oct 2015 07:28:00 GMT";
    a.headers["Retry-After"] = "Wed, 21 Oct 2015 07:28:30 GMT";
  });
  EXPECT_EQ(Get(File("config.json"))->retry_after, 30.0);
}

TEST_F(HttpClientTest, RefusesAnotherRangeThanItAskedFor) {
  Change([](HubAnswer& a) { a.headers["Content-Range"] = "bytes 0-999/300000"; });
  const auto response = Get(File("model-1.safetensors"), HttpRange{100, 1000});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(body_, "");
}

TEST_F(HttpClientTest, RefusesRangesThatAreNoRanges) {
  for (const char* range : {"", "bytes", "bytes 100-1099", "bytes 100-1099/5", "bytes 1099-100/300000", "bytes -/-"}) {
    Change([range](HubAnswer& a) { a.headers["Content-Range"] = range; });
    EXPECT_FALSE(Get(File("model-1.safetensors"), HttpRange{100, 1000})) << range;
  }
}

TEST_F(HttpClientTest, SaysSoWhenRangesAreIgnored) {
  Change([&](HubAnswer& a) {
    a.status = 200;
    a.body = server_.files().at("model-1.safetensors");
    a.headers.erase("Content-Range");
  });
  const auto response = Get(File("model-1.safetensors"), HttpRange{100, 1000});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code(), ErrorCode::kUnsupported);
}

TEST_F(HttpClientTest, ACutConnectionIsAnError) {
  Change([](HubAnswer& a) { a.cut_at = 500; });
  EXPECT_EQ(Get(File("model-1.safetensors"), HttpRange{100, 1000}).error().code(), ErrorCode::kIo);
}

TEST_F(HttpClientTest, AShorterBodyThanTheRangeIsAnError) {
  Change([](HubAnswer& a) { a.body.resize(500); });
  EXPECT_EQ(Get(File("model-1.safetensors"), HttpRange{100, 1000}).error().code(), ErrorCode::kIo);
}

TEST_F(HttpClientTest, GivesAStalledConnectionUp) {
  stall_seconds_ = 0.5;
  Change([](HubAnswer& a) { a.stall_at = 500; });
  EXPECT_EQ(Get(File("model-1.safetensors"), HttpRange{100, 1000}).error().code(), ErrorCode::kDeadline);
}

TEST_F(HttpClientTest, RefusesRedirectsWithoutEnd) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    a.status = 302;
    a.headers["Location"] = r.target;
  });
  const auto response = Get(File("config.json"));
  ASSERT_FALSE(response);
  EXPECT_NE(response.error().message().find("redirects"), std::string::npos);
  EXPECT_EQ(server_.requests().size(), static_cast<size_t>(HttpClient::kMostRedirects) + 1);
}

TEST_F(HttpClientTest, RefusesARedirectToAnotherKindOfAddress) {
  for (const char* location : {"file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:word@127.0.0.1/", "http://"}) {
    Change([location](HubAnswer& a) {
      a.status = 302;
      a.headers["Location"] = location;
    });
    EXPECT_FALSE(Get(File("config.json"))) << location;
  }
}

TEST(Url, TheTokenIsBoundToSchemeHostAndPort) {
  EXPECT_EQ(*OriginOf("https://Hub.example/x?y"), "https://hub.example:443");
  EXPECT_EQ(*OriginOf("http://hub.example:8080/"), "http://hub.example:8080");
  for (const char* url : {"", "hub.example", "file:///x", "https://me:word@hub.example/", "http://"})
    EXPECT_FALSE(OriginOf(url)) << url;
  EXPECT_TRUE(IsLoopbackUrl("http://127.0.0.1:9/") && IsLoopbackUrl("http://localhost") &&
              IsLoopbackUrl("http://[::1]:1/"));
  EXPECT_FALSE(IsLoopbackUrl("http://127.example.org/") || IsLoopbackUrl("http://10.0.0.1/"));
}

TEST(Url, ATokenNeverCrossesTheNetworkUnprotected) {
  const auto http = HttpClient::Create({});
  NoWaiter waiter;
  HubOptions options;
  options.endpoint = "http://hub.example";
  options.repo = "a/b";
  options.token = "secret";
  EXPECT_FALSE(HubClient::Create(**http, waiter, options));
  options.endpoint = "https://hub.example";
  EXPECT_TRUE(HubClient::Create(**http, waiter, options));
  for (const char* repo : {"", "model", "a/b/c", "../x", "a b", "/a", "a/", "a/..b"}) {
    options.repo = repo;
    EXPECT_FALSE(HubClient::Create(**http, waiter, options)) << repo;
  }
}

// A label of more than 63 letters is nowhere, and no server is asked for it.
std::string Nowhere() { return "http://" + std::string(70, 'a') + ".invalid"; }

TEST_F(HttpClientTest, AHostThatIsNotFoundIsTriedAgainAndNamed) {
  HttpClientOptions http_options;
  http_options.proxy = "none";
  const auto http = HttpClient::Create(http_options);
  NoWaiter waiter;
  HubOptions options;
  options.endpoint = Nowhere();
  options.repo = HubServer::kRepo;
  options.retry.attempts = 4;
  const auto hub = HubClient::Create(**http, waiter, options);
  const auto listing = (*hub)->List("", {});
  ASSERT_FALSE(listing);
  EXPECT_EQ(listing.error().code(), ErrorCode::kIo);
  EXPECT_NE(listing.error().message().find("resolve host"), std::string::npos) << listing.error().message();
  EXPECT_NE(listing.error().message().find("tried 4 times"), std::string::npos) << listing.error().message();
  EXPECT_EQ(waiter.waits().size(), 3u);
}

TEST_F(HttpClientTest, AProxyThatIsNotFoundIsTriedAgainAndNamed) {
  HttpClientOptions http_options;
  http_options.proxy = Nowhere() + ":3128";
  const auto http = HttpClient::Create(http_options);
  NoWaiter waiter;
  HubOptions options;
  options.endpoint = "http://hub.invalid";
  options.repo = HubServer::kRepo;
  options.retry.attempts = 4;
  const auto hub = HubClient::Create(**http, waiter, options);
  const auto listing = (*hub)->List("", {});
  ASSERT_FALSE(listing);
  EXPECT_NE(listing.error().message().find("resolve proxy"), std::string::npos) << listing.error().message();
  EXPECT_NE(listing.error().message().find("tried 4 times"), std::string::npos) << listing.error().message();
}

TEST_F(HttpClientTest, AClientWorksOnAfterATransferThatFailed) {
  HttpClientOptions options;
  options.proxy = "none";
  const auto client = HttpClient::Create(options);
  HttpRequest nowhere, here;
  nowhere.url = Nowhere();
  here.url = server_.url() + File("config.json");
  for (int i = 0; i < 3; ++i) {
    const auto failed = (*client)->Get(nowhere, {});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), ErrorCode::kIo) << failed.error().message();
    const auto got = (*client)->Get(here, {});
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_EQ(got->status, 200);
    EXPECT_FALSE(got->all_https);
  }
}

}  // namespace
}  // namespace deltafin::test
