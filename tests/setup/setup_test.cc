// A whole download from a hub on this machine, well and badly behaved: it ends byte-equal or with a clear error, and a
// partial file never has a final name.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "setup/setup_fixture.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

TEST_F(SetupTest, FetchesEveryFileInRangesAndTheSmallOnesFirst) {
  const auto report = Fetch();
  ASSERT_TRUE(report) << report.error().message();
  ExpectWhole();
  EXPECT_EQ(report->commit, HubServer::kCommit);
  EXPECT_EQ(report->files_fetched, 7u);
  size_t first_large = SIZE_MAX, last_small = 0;
  for (const HubRequest& r : server_.requests()) {
    if (r.to_content_port) first_large = std::min(first_large, r.number);
    if (r.to_content_port) {
      EXPECT_NE(r.range, "");
    }
    if (!r.file.empty() && !r.file.ends_with(".safetensors")) last_small = std::max(last_small, r.number);
  }
  EXPECT_LT(last_small, first_large);
}

TEST_F(SetupTest, ADryRunWritesNothing) {
  SetupOptions options = OptionsFor(to());
  options.dry_run = true;
  const auto report = Fetch(options);
  ASSERT_TRUE(report);
  EXPECT_FALSE(fs::exists(to()));
  EXPECT_EQ(report->files.size(), 7u);
  ASSERT_EQ(report->space.size(), 1u);
  EXPECT_GE(report->space[0].needed, 564'000u);
}

TEST_F(SetupTest, EndsByteEqualWhenConnectionsAreCut) {
  server_.Disturb(FirstContents(6, [](HubAnswer& a) { a.cut_at = a.body.size() / 2; }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_FALSE(waits_.empty());
}

TEST_F(SetupTest, EndsByteEqualWhenBodiesAreShort) {
  server_.Disturb(FirstContents(4, [](HubAnswer& a) { a.body.resize(a.body.size() - 7); }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenConnectionsStall) {
  stall_seconds_ = 0.5;
  server_.Disturb(FirstContents(3, [](HubAnswer& a) { a.stall_at = 10; }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenTheServerIsBusy) {
  for (const int status : {429, 500, 503}) {
    fs::remove_all(to());
    server_.Disturb([status, left = std::make_shared<int>(4)](const HubRequest&, HubAnswer& a) {
      if ((*left)-- <= 0) return;
      a = HubAnswer{};
      a.status = status;
      a.headers["Retry-After"] = "3";
    });
    ASSERT_TRUE(Fetch()) << status;
    ExpectWhole();
    EXPECT_GE(waits_.at(0), 3.0);
  }
}

TEST_F(SetupTest, EndsByteEqualWhenTheServerIgnoresRanges) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (!r.to_content_port) return;
    a.status = 200;
    a.headers.erase("Content-Range");
    a.body = server_.files().at(r.file);
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, EndsByteEqualWhenBitsFlipOnTheWay) {
  server_.Disturb(FirstContents(1, [](HubAnswer& a) { a.body[500] = static_cast<char>(a.body[500] ^ 4); }));
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_NE(notes_.find("fetched again"), std::string::npos) << notes_;
}

TEST_F(SetupTest, BitsThatFlipAlwaysAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.file == "model-2.safetensors" && r.to_content_port) a.body[5] = static_cast<char>(a.body[5] ^ 4);
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "sha256");
  EXPECT_FALSE(fs::exists(to() + "/model-2.safetensors"));
}

TEST_F(SetupTest, AnOutageOfMinutesEndsNoDownloadThatHasBegun) {
  server_.Disturb([left = std::make_shared<int>(40)](const HubRequest& r, HubAnswer& a) {
    if (r.to_content_port && (*left)-- > 0) a.cut_at = 0;
  });
  SetupOptions options = OptionsFor(to());
  options.connections = 1;
  HubOptions hub;
  hub.retry.attempts = 45;
  hub.first_attempts = 8;
  ASSERT_TRUE(Fetch(options, hub));
  ExpectWhole();
  EXPECT_GT(std::accumulate(waits_.begin(), waits_.end(), 0.0), 900);
}

TEST_F(SetupTest, AHubThatNeverAnswersIsGivenUpSooner) {
  server_.Disturb([](const HubRequest&, HubAnswer& a) { a.cut_at = 0; });
  HubOptions hub;
  hub.retry.attempts = 45;
  hub.first_attempts = 8;
  ExpectRefused(Fetch(OptionsFor(to()), hub), ErrorCode::kIo, "tried 8 times");
}

TEST_F(SetupTest, AServerThatStaysBusyIsAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.to_content_port)
      a = HubAnswer{.status = 503, .headers = {}, .body = "", .raw = {}, .cut_at = {}, .stall_at = {}};
  });
  ExpectRefused(Fetch(), ErrorCode::kIo, "503");
  server_.Disturb({});
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, WrongContentRangesAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.to_content_port) a.headers["Content-Range"] = "bytes 1-65536/300000";
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected bytes");
}

TEST_F(SetupTest, WrongSizesInTheListAreAClearError) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (!r.target.starts_with("/api/")) return;
    for (size_t at = 0; (at = a.body.find(":300000,", at)) != std::string::npos; ++at)
      a.body.replace(at, 8, ":300007,");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected size 300007");
}

TEST_F(SetupTest, ARevisionThatMovesHalfWayChangesNothing) {
  const std::string later(40, 'f');
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.number > 8 && r.to_content_port) a.cut_at = 0;
  });
  ASSERT_FALSE(Fetch());
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.target.ends_with("/revision/main")) a.body = Cat(R"({"sha":")", later, R"("})");
  });
  ASSERT_TRUE(Fetch());
  ExpectWhole();
  EXPECT_NE(notes_.find(later), std::string::npos) << notes_;
}

TEST_F(SetupTest, ContentsOfAnotherCommitAreRefused) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (a.headers.contains("X-Repo-Commit") && r.file == "model-3.safetensors")
      a.headers["X-Repo-Commit"] = std::string(40, 'f');
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected commit");
}

TEST_F(SetupTest, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name : {"../../evil", "/tmp/evil", "a/../b", "x\\u0000y"}) {
    server_.Disturb([name](const HubRequest& r, HubAnswer& a) {
      const size_t at = a.body.find("README.md");
      if (r.target.starts_with("/api/") && at != std::string::npos) a.body.replace(at, 9, name);
    });
    ExpectRefused(Fetch(), ErrorCode::kCorrupt, "expected names of files inside the repository");
    EXPECT_FALSE(fs::exists(to()));
  }
}

TEST_F(SetupTest, ListsThatAreNoneAreRefused) {
  for (const char* body : {"", "{", "[[[", "<html>", "[{\"type\":\"file\"}]"}) {
    server_.Disturb([body](const HubRequest& r, HubAnswer& a) {
      if (r.target.find("/tree/") != std::string::npos) a.body = body;
    });
    ASSERT_FALSE(Fetch()) << body;
  }
}

TEST_F(SetupTest, PagesInACircleAreRefused) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos) a.headers["Link"] = Cat("<", r.target, R"(>; rel="next")");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "circle");
}

TEST_F(SetupTest, PagesOfAnotherServerAreRefused) {
  server_.Disturb([&](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos)
      a.headers["Link"] = Cat("<", server_.content_url(), R"(/x>; rel="next")");
  });
  ExpectRefused(Fetch(), ErrorCode::kCorrupt, "same server");
}

TEST_F(SetupTest, AListWithoutEndIsRefused) {
  server_.Disturb([](const HubRequest& r, HubAnswer& a) {
    if (r.target.find("/tree/") != std::string::npos) a.body = std::string(size_t{33} << 20, ' ');
  });
  ExpectRefused(Fetch(), ErrorCode::kUnsupported, "at most");
}

TEST_F(SetupTest, ATokenIsAskedForAndGoesToTheHubOnly) {
  server_.RequireToken("secret");
  ExpectRefused(Fetch(), ErrorCode::kInvalidArgument, "--token-file");
  HubOptions hub;
  hub.token = "secret";
  ASSERT_TRUE(Fetch(OptionsFor(to()), hub));
  ExpectWhole();
  for (const HubRequest& r : server_.requests())
    if (r.to_content_port) {
      EXPECT_EQ(r.authorization, "");
    }
}

TEST_F(SetupTest, AMirrorBringsTheContentsAndTheHubsChecksumsDecide) {
  HubServer mirror(SmallRepository());
  HubOptions hub;
  hub.mirror = mirror.url();
  hub.token = "secret";
  ASSERT_TRUE(Fetch(OptionsFor(to()), hub));
  ExpectWhole();
  for (const HubRequest& r : server_.requests()) EXPECT_EQ(r.file, "");
  for (const HubRequest& r : mirror.requests()) EXPECT_EQ(r.authorization, "");
}

TEST_F(SetupTest, AnotherKindOfModelIsRefusedBeforeAnythingIsWritten) {
  SetupOptions options = OptionsFor(to());
  options.any_model = false;
  const auto refused = Fetch(options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("--any-model"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(fs::exists(to()));
}

TEST_F(SetupTest, StopsWhenAskedToAndGoesOn) {
  CancelSource cancel;
  HubAccess access(server_);
  SetupOptions options = OptionsFor(to());
  std::atomic<int> writes{0};
  options.hook = [&](DiskStep step, const std::string&) -> Status {
    if (step == DiskStep::kWrite && ++writes == 10) cancel.Cancel();
    return {};
  };
  ExpectRefused(FetchModel(*access.source, options, {}, cancel.token()), ErrorCode::kCancelled, "stopped");
  ASSERT_TRUE(Fetch());
  ExpectWhole();
}

TEST_F(SetupTest, AnAnswerThatIsNotHttpIsTriedAgain) {
  for (const char* line : {"garbage\r\n\r\n", "HTTP/1.1 200000\r\n\r\n", "\x01\x02\xff\r\n"}) {
    fs::remove_all(to());
    server_.Disturb([line, left = std::make_shared<int>(3)](const HubRequest& r, HubAnswer& a) {
      if (r.to_content_port && (*left)-- > 0) a.raw = line;
    });
    const auto report = Fetch();
    ASSERT_TRUE(report) << report.error().message();
    ExpectWhole();
    EXPECT_FALSE(waits_.empty());
  }
}

TEST_F(SetupTest, AServerWithoutRangesThatCutsEveryAnswerIsWaitedForWhileItGetsFurther) {
  auto share = std::make_shared<double>(0);
  server_.Disturb([&, share](const HubRequest& r, HubAnswer& a) {
    if (!r.to_content_port) return;
    a.status = 200;
    a.headers.erase("Content-Range");
    a.body = server_.files().at(r.file);
    if (r.file != "model-1.safetensors") return;
    *share += 0.25;  // of 300 kB
    if (*share < 1) a.cut_at = static_cast<size_t>(static_cast<double>(a.body.size()) * *share);
  });
  HubOptions hub;
  hub.retry.attempts = 2;
  const auto report = Fetch(OptionsFor(to()), hub);
  ASSERT_TRUE(report) << report.error().message();
  ExpectWhole();
}

}  // namespace
}  // namespace deltafin::test
