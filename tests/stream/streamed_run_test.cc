// Answers while experts are fetched: the reference's ids whatever hub, drive and user do, or a clear error; offline
// afterwards the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "checkpoint/inspect.h"
#include "stream/made_stream.h"

namespace deltafin {
namespace {

using test::HubServer;
using testing::HasSubstr;

class StreamedRun : public testing::Test {
 protected:
  // One hub and one dense part for all tests; each has a copy.
  static void SetUpTestSuite() {
    shared_server_ = std::make_unique<HubServer>(test::NanoModel());
    shared_dense_ = std::make_unique<test::TempFolder>();
    test::MakeStream(*shared_server_, shared_dense_->path());
  }
  static void TearDownTestSuite() {
    shared_server_.reset();
    shared_dense_.reset();
  }
  StreamedRun() : server_(*shared_server_), expected_(test::ExpectedGreedy(0)) {
    server_.BeGood();
    std::filesystem::copy(shared_dense_->path(), to(), std::filesystem::copy_options::recursive);
  }
  const std::string& to() const { return folder_.path(); }
  uint64_t ExpertsThere() const { return InspectFolder(to())->stream->experts; }
  // Flips a bit in the middle of every expert that was fetched into shard `name`.
  int DamageExperts() const {
    const auto folder = StreamFolder::Open(to(), StreamFolder::Use::kRead);
    int damaged = 0;
    for (int32_t file = 0; file < static_cast<int32_t>((*folder)->manifest().files.size()); ++file)
      for (const PresenceEntry& entry : (*folder)->Ranges(file)) {
        if (entry.kind != PresenceKind::kExpert) continue;
        std::fstream stored((*folder)->PathOf(file), std::ios::binary | std::ios::in | std::ios::out);
        const auto at = static_cast<std::streamoff>(entry.range.offset + entry.range.bytes / 2);
        stored.seekg(at);
        const char byte = static_cast<char>(stored.get() ^ 8);
        stored.seekp(at);
        stored.put(byte);
        ++damaged;
      }
    return damaged;
  }

  static inline std::unique_ptr<HubServer> shared_server_;
  static inline std::unique_ptr<test::TempFolder> shared_dense_;
  HubServer& server_;
  const test::TempFolder folder_;
  const test::GreedyCase expected_;
};

TEST_F(StreamedRun, GivesTheReferencesIdsWhileTheHubFailsAndOfflineAfterwards) {
  server_.SetFaults({.drop = 1, .truncate = 1, .error = 1, .busy = 3, .flip = 0, .stall = 0});
  for (const size_t number : {0u, 1u}) {
    const test::GreedyCase c = test::ExpectedGreedy(number);
    const auto online = test::RunGreedy(to(), c, {"--stats"});
    EXPECT_EQ(online.exit_code, 0) << online.err;
    EXPECT_EQ(online.out, c.new_ids);
    EXPECT_THAT(online.err, HasSubstr("network: "));
    server_.SetFaults({});
  }
  const int requests = server_.requests();
  server_.GoAway();
  for (const size_t number : {0u, 1u}) {
    const test::GreedyCase c = test::ExpectedGreedy(number);
    const auto offline = test::RunGreedy(to(), c, {"--offline"});
    EXPECT_EQ(offline.exit_code, 0) << offline.err;
    EXPECT_EQ(offline.out, c.new_ids);
  }
  EXPECT_EQ(server_.requests(), requests);
}

TEST_F(StreamedRun, WhatWasFetchedIsNotFetchedAgain) {
  ASSERT_EQ(test::RunGreedy(to(), expected_).out, expected_.new_ids);
  const int requests = server_.requests();
  EXPECT_EQ(test::RunGreedy(to(), expected_).out, expected_.new_ids);
  EXPECT_EQ(server_.requests(), requests);
}

TEST_F(StreamedRun, AnAbsentExpertEndsAnOfflineRunWithItsNameAndWhatToDo) {
  const auto r = test::RunGreedy(to(), expected_, {"--offline"});
  EXPECT_EQ(r.exit_code, 5) << r.err;
  EXPECT_THAT(r.err, HasSubstr("layer "));
  EXPECT_THAT(r.err, HasSubstr("expert "));
  EXPECT_THAT(r.err, HasSubstr(".safetensors"));
  EXPECT_THAT(r.err, HasSubstr("deltafin setup --repo made/k3-nano --to " + to()));
}

TEST_F(StreamedRun, AHubThatCannotBeReachedEndsTheRun) {
  server_.GoAway();
  const auto r = test::RunGreedy(to(), expected_, {"--fetch-attempts", "2"});
  EXPECT_EQ(r.exit_code, 5) << r.err;
  EXPECT_THAT(r.err, HasSubstr("expert "));
  EXPECT_THAT(r.err, HasSubstr(server_.endpoint()));
}

TEST_F(StreamedRun, KilledInTheMiddleItKeepsWhatCameAndTheNextRunIsRight) {
  server_.SetDelay(20);
  for (int i = 0; i < 3; ++i) {
    test::ProcessOptions options;
    options.while_running = [](int pid) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      kill(pid, SIGKILL);
    };
    EXPECT_EQ(test::RunGreedy(to(), expected_, {}, options).exit_code, 137);
  }
  EXPECT_GT(ExpertsThere(), 0u);
  server_.SetDelay(0);
  const auto r = test::RunGreedy(to(), expected_);
  EXPECT_EQ(r.out, expected_.new_ids) << r.err;
  server_.GoAway();
  EXPECT_EQ(test::RunGreedy(to(), expected_, {"--offline"}).out, expected_.new_ids);
}

TEST_F(StreamedRun, DamageOnDiskIsFoundAndFetchedAgainOrNamedWhenOffline) {
  ASSERT_EQ(test::RunGreedy(to(), expected_).out, expected_.new_ids);
  ASSERT_GT(DamageExperts(), 0);
  const auto offline = test::RunGreedy(to(), expected_, {"--offline"});
  EXPECT_EQ(offline.exit_code, 3) << offline.err;
  EXPECT_THAT(offline.err, HasSubstr("leave --offline out"));
  const int requests = server_.requests();
  const auto online = test::RunGreedy(to(), expected_, {"--stats"});
  EXPECT_EQ(online.out, expected_.new_ids) << online.err;
  EXPECT_GT(server_.requests(), requests);
  EXPECT_THAT(online.err, HasSubstr("again, since they were damaged"));
  EXPECT_EQ(test::RunGreedy(to(), expected_, {"--offline"}).out, expected_.new_ids);
}

TEST_F(StreamedRun, ACommitThatIsGoneFromTheHubIsNamed) {
  server_.Move(/*forget=*/true);
  const auto r = test::RunGreedy(to(), expected_);
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_THAT(r.err, HasSubstr(server_.first_commit()));
}

TEST_F(StreamedRun, FetchingTwiceFindsDamageOnTheWay) {
  server_.SetFaults({.drop = 0, .truncate = 0, .error = 0, .busy = 0, .flip = 100, .stall = 0});
  const auto r = test::RunGreedy(to(), expected_, {"--check-twice"});
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_THAT(r.err, HasSubstr("--check-twice"));
  server_.SetFaults({});
  EXPECT_EQ(test::RunGreedy(to(), expected_, {"--check-twice"}).out, expected_.new_ids);
}

TEST_F(StreamedRun, DamageOnTheWayIsFoundByTheChecksumOfTheWholeFileAtTheLatest) {
  server_.SetFaults({.drop = 0, .truncate = 0, .error = 0, .busy = 0, .flip = 100, .stall = 0});
  (void)test::RunGreedy(to(), expected_);
  ASSERT_GT(ExpertsThere(), 0u);
  server_.SetFaults({});
  const Result<int> done = RunStreamSetup(test::SetupOf(server_, to(), false));
  ASSERT_TRUE(done) << done.error().message();
  test::ExpectComplete(to());
}

TEST_F(StreamedRun, ASecondProcessIsRefused) {
  const auto folder = StreamFolder::Open(to(), StreamFolder::Use::kFetch);
  ASSERT_TRUE(folder);
  for (const auto& more : {std::vector<std::string>{}, {"--offline"}}) {
    const auto r = test::RunGreedy(to(), expected_, more);
    EXPECT_EQ(r.exit_code, 4) << r.err;
    EXPECT_THAT(r.err, HasSubstr("another deltafin"));
  }
}

TEST_F(StreamedRun, ABoundOnWhatIsKeptHoldsAndChangesNoIds) {
  const uint64_t bound = 1'300'000;  // of the 11 MB that this answer wants
  const auto r = test::RunGreedy(to(), expected_, {"--keep-experts", "1300KB"});
  EXPECT_EQ(r.out, expected_.new_ids) << r.err;
  EXPECT_LE(InspectFolder(to())->stream->expert_bytes, bound);
  const auto small = test::RunGreedy(to(), expected_, {"--keep-experts", "1KB"});
  EXPECT_EQ(small.exit_code, 2) << small.err;
}

TEST_F(StreamedRun, OptionsThatSayNothingHereAreRefused) {
  for (const auto& more : std::vector<std::vector<std::string>>{
           {"--check-twice"}, {"--keep-experts", "1GB"}, {"--proxy", "http://127.0.0.1:1"}}) {
    std::vector<std::string> offline = more;
    offline.push_back("--offline");
    EXPECT_EQ(test::RunGreedy(to(), expected_, offline).exit_code, 2) << more[0];
    EXPECT_EQ(test::RunGreedy(test::NanoModel(), expected_, more).exit_code, 2) << more[0];
  }
  EXPECT_EQ(test::RunGreedy(test::NanoModel(), expected_, {"--offline"}).out, expected_.new_ids);
}

TEST_F(StreamedRun, InspectSaysWhatIsThereAndWhereTheRestComesFrom) {
  ASSERT_EQ(test::RunGreedy(to(), expected_).exit_code, 0);
  const auto r = test::Deltafin({"inspect", "--model", to(), "--no-state"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_THAT(r.out, HasSubstr("fetched        from made/k3-nano, commit " + server_.first_commit()));
  const Json json = Json::parse(test::Deltafin({"inspect", "--model", to(), "--no-state", "--json"}).out);
  EXPECT_GT(json["stream"]["experts"].get<int>(), 0);
  EXPECT_EQ(json["stream"]["endpoint"], server_.endpoint());
}

}  // namespace
}  // namespace deltafin
