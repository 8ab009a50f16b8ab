// `setup` of a folder whose experts are fetched later: whatever the hub does, it ends as the repository or says why
// not; what is there is never fetched twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "checkpoint/inspect.h"
#include "stream/made_stream.h"

namespace deltafin {
namespace {

using test::HubServer;
using testing::HasSubstr;

uint64_t BytesOf(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

// Runs it in a process of its own, killed after `milliseconds`. The exit code, or -1.
int KilledAfter(const StreamSetupOptions& options, int milliseconds) {
  const pid_t child = fork();
  if (child == 0) {
    const Result<int> done = RunStreamSetup(options);
    _exit(done ? *done : 1);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StreamSetup, TheDensePartIsAllButTheExpertsAndTheFolderOpensAsAModel) {
  const HubServer server(test::NanoModel());
  const test::TempFolder to;
  StreamSetupOptions once = test::SetupOf(server, to.path());
  once.access.check_twice = CheckTwice::kOff;
  const Result<int> made = RunStreamSetup(once);
  ASSERT_TRUE(made) << made.error().message();
  const auto report = InspectFolder(to.path());
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->complete) << (report->problems.empty() ? "" : report->problems[0]);
  ASSERT_TRUE(report->stream);
  EXPECT_EQ(report->stream->experts, 0u);
  EXPECT_LE(server.body_bytes() + report->expert_bytes, BytesOf(test::NanoModel()) + 1000);
  const auto checkpoint = Checkpoint::Open({.folder = to.path(), .index_cache_folder = "", .may_be_streamed = true});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->fingerprint(), Checkpoint::Open({test::NanoModel(), ""})->fingerprint());
}

TEST(StreamSetup, ThoseWhoNeedAllExpertsRefuseTheFolderAndSayHowToCompleteIt) {
  const HubServer server(test::NanoModel());
  const test::TempFolder to, elsewhere;
  test::MakeStream(server, to.path());
  for (const ExpertsWanted experts : {ExpertsWanted::kInShards, ExpertsWanted::kPartial}) {
    const auto opened = Checkpoint::Open({.folder = to.path(), .index_cache_folder = "", .experts = experts});
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message(), HasSubstr("deltafin setup --repo made/k3-nano --to " + to.path()));
  }
  const auto pack = test::Deltafin({"pack", "--model", to.path(), "--to", elsewhere.path(), "--no-state"});
  EXPECT_EQ(pack.exit_code, 3) << pack.err;
  EXPECT_THAT(pack.err, HasSubstr("deltafin setup"));
  EXPECT_EQ(test::Deltafin({"verify", "--model", to.path(), "--no-state"}).exit_code, 3);
}

TEST(StreamSetup, CompletingReusesWhatIsThereAndEndsAsTheRepository) {
  const HubServer server(test::NanoModel());
  const test::TempFolder to;
  StreamSetupOptions once = test::SetupOf(server, to.path());
  once.access.check_twice = CheckTwice::kOff;
  ASSERT_TRUE(RunStreamSetup(once));
  const uint64_t dense = server.body_bytes();
  once.dense_only = false;
  const Result<int> done = RunStreamSetup(once);
  ASSERT_TRUE(done) << done.error().message();
  test::ExpectComplete(to.path());
  EXPECT_LE(server.body_bytes(), BytesOf(test::NanoModel()) + 1000) << dense << " of it for the dense part";
}

TEST(StreamSetup, AHubThatDropsTruncatesFlipsStallsAndRefusesChangesNothing) {
  HubServer server(test::NanoModel());
  const test::HubFaults faults{.drop = 8, .truncate = 8, .error = 8, .busy = 8, .flip = 8, .stall = 1};
  const test::TempFolder to;
  for (const bool dense_only : {true, false}) {
    server.SetFaults(faults);
    const Result<int> done = RunStreamSetup(test::SetupOf(server, to.path(), dense_only));
    ASSERT_TRUE(done) << done.error().message();
    test::ExpectEveryKindHappened(faults, server.happened());
    if (dense_only) {
      EXPECT_GT(test::ExpectStoredBytes(to.path()), 0u);
    }
  }
  test::ExpectComplete(to.path());
}

TEST(StreamSetup, KilledAgainAndAgainItGoesOnAndEndsAsTheRepository) {
  HubServer server(test::NanoModel());
  server.SetDelay(4);
  const test::TempFolder to;
  std::mt19937 random(7);
  int killed = 0;
  for (const bool dense_only : {true, false}) {
    for (int i = 0; i < 5; ++i) {
      killed += KilledAfter(test::SetupOf(server, to.path(), dense_only), 10 + static_cast<int>(random() % 120)) < 0;
      for (const auto& entry : std::filesystem::directory_iterator(to.path())) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".safetensors")) continue;
        EXPECT_TRUE(ReadWholeFile(entry.path().string(), uint64_t{1} << 30).value() ==
                    ReadWholeFile(test::NanoModel() + "/" + name, uint64_t{1} << 30).value())
            << name << " has its final name and is not whole";
      }
    }
  }
  EXPECT_GT(killed, 3);
  server.SetDelay(0);
  const bool goes_on = IsStreamedFolder(to.path());
  const Result<int> done = RunStreamSetup(test::SetupOf(server, to.path(), !goes_on));
  ASSERT_TRUE(done) << done.error().message();
  if (!goes_on) {
    ASSERT_TRUE(RunStreamSetup(test::SetupOf(server, to.path(), false)));
  }
  test::ExpectComplete(to.path());
}

TEST(StreamSetup, AMovedBranchChangesNothingAndACommitThatIsGoneIsAnError) {
  HubServer server(test::NanoModel());
  const test::TempFolder to;
  test::MakeStream(server, to.path());
  server.Move(/*forget=*/true);
  const Result<int> gone = RunStreamSetup(test::SetupOf(server, to.path(), false));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(gone.error().message(), HasSubstr(server.first_commit()));
  server.Move(/*forget=*/false);
  const Result<int> done = RunStreamSetup(test::SetupOf(server, to.path(), false));
  ASSERT_TRUE(done) << done.error().message();
  test::ExpectComplete(to.path());
}

TEST(StreamSetup, AnotherRepositoryOrRevisionInTheSameFolderIsRefused) {
  const HubServer server(test::NanoModel());
  const test::TempFolder to;
  test::MakeStream(server, to.path());
  StreamSetupOptions other = test::SetupOf(server, to.path());
  other.access.hub.repo = "made/other";
  EXPECT_EQ(RunStreamSetup(other).error().code(), ErrorCode::kInvalidArgument);
  other = test::SetupOf(server, to.path());
  other.access.hub.revision = "v2";
  other.revision_given = true;
  EXPECT_EQ(RunStreamSetup(other).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafin
