// Child processes, and what is read from the events of a run.
#include "bench/child_run.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/child_process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<ChildExit> Shell(const std::string& script, ChildOptions options = {}) {
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  return RunChild(options);
}

TEST(RunChild, HandsOnLinesAndTheEnd) {
  std::vector<std::string> lines;
  ChildOptions options;
  options.on_line = [&](std::string_view line, double) { lines.emplace_back(line); };
  const auto exit = Shell("echo one; printf 'two\\n\\nlast'; echo oops >&2; exit 3", options);
  ASSERT_TRUE(exit) << exit.error().message();
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "last"));
  EXPECT_EQ(exit->code, 3);
  EXPECT_EQ(exit->errors, "oops\n");
  EXPECT_FALSE(exit->good());
}

TEST(RunChild, TellsAStoppedProgramFromOneThatEnded) {
  const auto exit = Shell("kill -9 $$");
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->signal, SIGKILL);
  ChildOptions nothing;
  nothing.program = "/nowhere/program";
  const auto missing = RunChild(nothing);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("/nowhere/program"));
}

// Also a program that does not listen, and its own children.
TEST(RunChild, EndsTheProgramWhenItIsAskedTo) {
  for (const char* script : {"sleep 60", "trap '' TERM; echo ready; sleep 60 & wait; sleep 60"}) {
    CancelSource source;
    ChildOptions options;
    options.cancel = source.token();
    options.grace_seconds = 0.2;
    double asked = -1;
    options.on_tick = [&](double seconds) {
      if (seconds > 0.2 && asked < 0) {
        asked = seconds;
        source.Cancel();
      }
    };
    const auto exit = Shell(script, options);
    ASSERT_TRUE(exit);
    EXPECT_TRUE(exit->cancelled);
    EXPECT_LT(exit->seconds, 30);
  }
}

constexpr const char* kToken =
    R"({"event":"token","id":5,"text":"ab","seconds":0.5,"seconds_expert_wait":0.2,"seconds_dense_wait":0.1})";
constexpr const char* kStats =
    R"({"event":"stats","prompt_tokens":4,"new_tokens":2,"seconds_load":0.3,"seconds_first_token":0.5,"seconds_total":0.9,)"
    R"("expert_bytes_demand":100,"expert_bytes_prefetch_useful":20,"expert_bytes_prefetch_wasted":3,"dense_bytes_read":1000,)"
    R"("peak_rss_bytes":77,"engine":"cpu","seconds_by_operation":{"dense matrices":{"prompt":0.1,"decoding":0.2}},)"
    R"("drives":[{"name":"/a","bytes":600,"seconds_busy":0.25},{"name":"/b","bytes":500,"seconds_busy":0.2}],)"
    R"("drafts":{"drafters":[{"name":"ngram","drafted":6,"right":4,"seconds":0.05}]}})";

const TimePart& Part(const BenchRun& run, const std::string& name) {
  static const TimePart none;
  for (const TimePart& part : run.time)
    if (part.name == name) return part;
  return none;
}

TEST(RunEvents, MakeARun) {
  BenchRun run;
  RunEvents events(run);
  events.Add(R"({"event":"progress","phase":"loading"})", 0.1);
  events.Add(kToken, 0.9);
  events.Add(R"({"event":"token","id":6,"text":"c","seconds_expert_wait":0.05,"seconds_dense_wait":0})", 1.3);
  events.Add(R"({"event":"token","text":"d"})", 1.3);
  events.Add(kStats, 1.4);
  ASSERT_TRUE(events.Finish());
  EXPECT_THAT(run.ids, ElementsAre(5, 6));
  EXPECT_DOUBLE_EQ(run.first_token_at, 0.9);
  EXPECT_DOUBLE_EQ(run.steady(), 1 / 0.4);
  EXPECT_DOUBLE_EQ(run.inclusive(), 2 / 0.9);
  EXPECT_EQ(run.own_bytes, 1100u);
  EXPECT_EQ(run.payload_bytes, 1123u);
  EXPECT_EQ(run.drafted, 6u);
  EXPECT_EQ(run.drafted_right, 4u);
  // printf 5,6 | sha256sum; printf abcd | sha256sum
  EXPECT_EQ(run.ids_sha256, "e96f71a6079688ae6f7063cb93d59d5d80d15287032b2b777d77c0f6e15452e2");
  EXPECT_EQ(run.text_sha256, "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
  EXPECT_DOUBLE_EQ(Part(run, "waiting for experts").prompt, 0.2);
  EXPECT_DOUBLE_EQ(Part(run, "waiting for experts").decoding, 0.05);
  EXPECT_DOUBLE_EQ(Part(run, "dense matrices").decoding, 0.2);
  EXPECT_NEAR(Part(run, "everything else").prompt, 0.5 - 0.2 - 0.1 - 0.1, 1e-12);
  EXPECT_NEAR(Part(run, "everything else").decoding, 0.4 - 0.05 - 0.2 - 0.05, 1e-12);
}

TEST(RunEvents, RefuseWhatMakesNoSense) {
  const auto message = [](const std::vector<std::string>& lines) {
    BenchRun run;
    RunEvents events(run);
    for (const std::string& line : lines) events.Add(line, 1);
    const Status finished = events.Finish();
    return finished ? std::string() : finished.error().message();
  };
  EXPECT_EQ(message({kToken, kStats}), "");
  EXPECT_THAT(message({}), HasSubstr("without figures"));
  EXPECT_THAT(message({kToken}), HasSubstr("without figures"));
  EXPECT_THAT(message({kStats}), HasSubstr("without figures"));
  EXPECT_THAT(message({"hello", kToken, kStats}), HasSubstr("event of the run"));
  EXPECT_NE(message({kToken, R"({"event":"stats","seconds_total":"long","drives":7,"drafts":[]})"}), "");
}

TEST(ArmArguments, ReplaceWhatIsGivenForAll) {
  const BenchArm arm{"a", {"--draft", "off", "--experts=/b"}, false};
  EXPECT_THAT(ArmArguments({"--model=/m", "--draft=auto", "--experts=/x", "--experts=/y", "--verify-reads"}, arm),
              ElementsAre("--model=/m", "--verify-reads", "--draft", "off", "--experts=/b"));
  EXPECT_THAT(OptionNames({"--draft", "off", "--experts=/b"}), ElementsAre("--draft", "--experts"));
}

TEST(ChildRunner, SaysHowARunEnded) {
  const test::TempFolder folder;
  const BenchArm arm{"a", {}, false};
  const BenchPrompt prompt{"p", {1}, "", {1}};
  const std::vector<BenchDevice> devices;
  const auto message = [&](const std::string& script) {
    const std::string program = folder.path() + "/program";
    FILE* file = std::fopen(program.c_str(), "w");
    std::fputs(("#!/bin/sh\n" + script).c_str(), file);
    std::fclose(file);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    const auto run = CreateChildRunner(program, {})(
        RunRequest{.arm = arm, .prompt = prompt, .new_tokens = 1, .round = 1, .devices = devices, .cancel = {}});
    return run ? Error(ErrorCode::kInternal, "good") : run.error();
  };
  const Error refused = message("echo warming >&2\necho 'deltafin run: no such model' >&2\nexit 3\n");
  EXPECT_EQ(refused.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(refused.message(), "the run ended with exit code 3: deltafin run: no such model");
  EXPECT_EQ(message("exit 4\n").code(), ErrorCode::kUnavailable);
  EXPECT_EQ(message("exit 130\n").code(), ErrorCode::kCancelled);
  EXPECT_THAT(message("kill -11 $$\n").message(), HasSubstr("signal 11"));
  EXPECT_THAT(message("exit 0\n").message(), HasSubstr("without figures"));
  EXPECT_THAT(message("echo '{'\n").message(), HasSubstr("event of the run"));
}

}  // namespace
}  // namespace deltafin
