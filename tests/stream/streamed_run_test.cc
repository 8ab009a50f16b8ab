// Answers while experts are fetched: the reference's ids, or an error that says what to do; offline afterwards the
// same.
#include "stream/streamed_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltafin {
namespace {

using testing::HasSubstr;

class StreamedRun : public test::StreamedModel {};

TEST_F(StreamedRun, GivesTheReferencesIdsWhileTheHubFailsAndOfflineAfterwards) {
  const test::HubFaults faults{.drop = 1, .truncate = 1, .error = 1, .busy = 3, .flip = 3, .stall = 1};
  server_.SetFaults(faults);
  for (const size_t number : {0u, 1u}) {
    const test::GreedyCase c = test::ExpectedGreedy(number);
    const auto online = test::RunGreedy(to(), c, {"--stats"});
    EXPECT_EQ(online.exit_code, 0) << online.err;
    EXPECT_EQ(online.out, c.new_ids);
    EXPECT_THAT(online.err, HasSubstr("network: "));
    EXPECT_THAT(online.err, HasSubstr("each twice and compared"));
    EXPECT_THAT(online.err, HasSubstr("read as they were fetched"));
    if (number == 0) test::ExpectEveryKindHappened(faults, server_.happened());
    server_.SetFaults({});
  }
  EXPECT_GT(ExpertsThere(), 0u);
  EXPECT_GT(test::ExpectStoredBytes(to()), ExpertsThere());
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

TEST_F(StreamedRun, ASecondProcessIsRefused) {
  const auto folder = StreamFolder::Open(to(), StreamFolder::Use::kFetch);
  ASSERT_TRUE(folder);
  for (const auto& more : {std::vector<std::string>{}, {"--offline"}}) {
    const auto r = test::RunGreedy(to(), expected_, more);
    EXPECT_EQ(r.exit_code, 4) << r.err;
    EXPECT_THAT(r.err, HasSubstr("another deltafin"));
  }
}

TEST_F(StreamedRun, OptionsThatSayNothingHereAreRefused) {
  for (const auto& more : std::vector<std::vector<std::string>>{{"--check-twice"},
                                                                {"--keep-experts", "1GB"},
                                                                {"--proxy", "http://127.0.0.1:1"},
                                                                {"--endpoint", "http://127.0.0.1:1"},
                                                                {"--connections", "2"},
                                                                {"--fetch-attempts", "3"}}) {
    std::vector<std::string> offline = more;
    offline.push_back("--offline");
    EXPECT_EQ(test::RunGreedy(to(), expected_, offline).exit_code, 2) << more[0];
    EXPECT_EQ(test::RunGreedy(test::NanoModel(), expected_, more).exit_code, 2) << more[0];
  }
  EXPECT_EQ(test::RunGreedy(test::NanoModel(), expected_, {"--offline"}).out, expected_.new_ids);
  EXPECT_EQ(test::RunGreedy(to(), expected_, {"--check-twice", "perhaps"}).exit_code, 2);
}

}  // namespace
}  // namespace deltafin
