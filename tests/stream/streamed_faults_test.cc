// Answers while experts are fetched, when the process is killed, the drive or the line damages data, or room is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "stream/streamed_run.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

class StreamedFaults : public test::StreamedModel {};

TEST_F(StreamedFaults, WhatWasFetchedIsNotFetchedAgain) {
  ASSERT_EQ(test::RunGreedy(to(), expected_).out, expected_.new_ids);
  const int requests = server_.requests();
  EXPECT_EQ(test::RunGreedy(to(), expected_).out, expected_.new_ids);
  EXPECT_EQ(server_.requests(), requests);
}

TEST_F(StreamedFaults, KilledInTheMiddleItKeepsWhatCameAndTheNextRunIsRight) {
  server_.SetDelay(20);
  for (int i = 0; i < 3; ++i) {
    test::ProcessOptions options;
    const int enough = server_.requests() + 40;  // some of them have been answered, and put on disk
    options.while_running = [&](int pid) {
      for (int i = 0; i < 20'000 && server_.requests() < enough; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

TEST_F(StreamedFaults, DamageOnDiskIsFoundAndFetchedAgainOrNamedWhenOffline) {
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

TEST_F(StreamedFaults, ACommitThatIsGoneFromTheHubIsNamed) {
  server_.Move(/*forget=*/true);
  const auto r = test::RunGreedy(to(), expected_);
  EXPECT_EQ(r.exit_code, 3) << r.err;
  EXPECT_THAT(r.err, HasSubstr(server_.first_commit()));
}

TEST_F(StreamedFaults, FetchingTwiceFindsDamageOnTheWayAndOverHttpNeedsNoAsking) {
  for (const auto& more : std::vector<std::vector<std::string>>{{}, {"--check-twice"}, {"--check-twice", "on"}}) {
    server_.SetFaults({.drop = 0, .truncate = 0, .error = 0, .busy = 0, .flip = 100, .stall = 0});
    const auto r = test::RunGreedy(to(), expected_, more);
    EXPECT_EQ(r.exit_code, 3) << r.err;
    EXPECT_THAT(r.err, HasSubstr("--check-twice"));
    EXPECT_EQ(ExpertsThere(), 0u);
  }
  server_.SetFaults({});
  EXPECT_EQ(test::RunGreedy(to(), expected_, {"--check-twice"}).out, expected_.new_ids);
}

TEST_F(StreamedFaults, DamageOnTheWayIsFoundByTheChecksumOfTheWholeFileAtTheLatest) {
  server_.SetFaults({.drop = 0, .truncate = 0, .error = 0, .busy = 0, .flip = 100, .stall = 0});
  (void)test::RunGreedy(to(), expected_, {"--check-twice", "off"});
  ASSERT_GT(ExpertsThere(), 0u);
  server_.SetFaults({});
  const Result<int> done = RunStreamSetup(test::SetupOf(server_, to(), false));
  ASSERT_TRUE(done) << done.error().message();
  test::ExpectComplete(to());
}

TEST_F(StreamedFaults, ABoundOnWhatIsKeptHoldsAndChangesNoIds) {
  const uint64_t bound = 1'300'000;  // of the 11 MB that this answer wants
  const auto r = test::RunGreedy(to(), expected_, {"--keep-experts", "1300KB"});
  EXPECT_EQ(r.out, expected_.new_ids) << r.err;
  EXPECT_LE(InspectFolder(to())->stream->expert_bytes, bound);
  const auto small = test::RunGreedy(to(), expected_, {"--keep-experts", "1KB"});
  EXPECT_EQ(small.exit_code, 2) << small.err;
}

TEST_F(StreamedFaults, InspectSaysWhatIsThereAndWhereTheRestComesFrom) {
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
