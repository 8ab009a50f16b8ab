// --session from outside: conversations go on in another process, also after one that was killed, with the tokens that
// one undisturbed sequence has.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "base/platform.h"
#include "support/engine_runs.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr int kNew = kIsSanitized ? 40 : 150;

test::ProcessResult Deltafin(std::vector<std::string> arguments, test::ProcessOptions options = {}) {
  options.arguments = std::move(arguments);
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

std::string Commas(std::string ids) {
  std::replace(ids.begin(), ids.end(), ' ', ',');
  std::erase(ids, '\n');
  return ids;
}

const std::vector<std::string>& Prompts() {
  static const std::vector<std::string> prompts = {"3,17,40,41,42,99", "7,8,9", "250,1,2,33,4,5,6"};
  return prompts;
}

class RunSession : public testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::string& prompt, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"run",
                                          "--model",
                                          test::MicroFolder(),
                                          "--ids",
                                          "--prompt-ids",
                                          prompt,
                                          "--quiet",
                                          "--max-new",
                                          std::to_string(kNew),
                                          "--threads",
                                          "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // One run without a session.
  std::string Plain(const std::string& prompt, std::vector<std::string> more = {}) const {
    more.push_back("--no-state");
    const auto r = Deltafin(Arguments(prompt, more));
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.out;
  }
  test::ProcessResult Ask(const std::string& prompt, std::vector<std::string> more = {},
                          test::ProcessOptions options = {}) const {
    for (const char* argument : {"--session", "talk", "--state-dir"}) more.push_back(argument);
    more.push_back(state_.path());
    return Deltafin(Arguments(prompt, more), std::move(options));
  }
  // What the answers to Prompts() are: each time the whole history read by one run.
  const std::vector<std::string>& Expected() const {
    static const std::vector<std::string> expected = [this] {
      std::vector<std::string> answers;
      std::string history;
      for (const std::string& prompt : Prompts()) {
        history += (history.empty() ? "" : ",") + prompt;
        answers.push_back(Plain(history));
        history += "," + Commas(answers.back());
      }
      return answers;
    }();
    return expected;
  }
  // The folder of the session "talk" of the only model.
  fs::path Folder() const { return fs::directory_iterator(state_.path() + "/sessions")->path(); }

  static test::ProcessOptions KilledAfter(std::chrono::microseconds delay) {
    test::ProcessOptions options;
    // A timer outlives exec, and the program does not handle its signal: it ends as from SIGKILL.
    options.in_child = [delay] {
      itimerval timer{};
      timer.it_value = {delay.count() / 1'000'000, std::max<int64_t>(1, delay.count() % 1'000'000)};
      setitimer(ITIMER_REAL, &timer, nullptr);
    };
    return options;
  }
  static test::ProcessOptions KilledAtTheFirstToken() {
    test::ProcessOptions options;
    options.while_running = [](int pid) { kill(pid, SIGKILL); };
    return options;
  }

  test::TempFolder state_;
};

TEST_F(RunSession, GoesOnInAnotherProcessAsInOneSequence) {
  for (size_t i = 0; i < Prompts().size(); ++i) {
    const auto r = Ask(Prompts()[i]);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.out, Expected()[i]) << "turn " << i;
    EXPECT_EQ(r.err, "");
  }
}

TEST_F(RunSession, ReadsOnlyWhatIsNew) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  std::vector<std::string> arguments = Arguments(Prompts()[1], {"--session", "talk", "--state-dir", state_.path()});
  *std::find(arguments.begin(), arguments.end(), "--ids") = "--json";
  const auto r = Deltafin(arguments);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  Json stats;
  std::istringstream in(r.out);
  for (std::string line; std::getline(in, line);) stats = Json::parse(line);
  const auto answer = std::count(Expected()[0].begin(), Expected()[0].end(), ' ') + 1;
  EXPECT_EQ(stats["prompt_tokens"], 6 + answer + 3);
  EXPECT_EQ(stats["prompt_tokens_read"], 1 + 3);  // the last token of an answer was never read
}

// Every turn is killed once at its first token and then later and later, until it comes to its end.
TEST_F(RunSession, KilledAtAnyMomentTheSameCommandGivesTheWholeAnswer) {
  using Clock = std::chrono::steady_clock;
  (void)Expected();
  const auto start = Clock::now();
  Plain(Prompts()[0]);
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  int killed = 0;
  for (size_t i = 0; i < Prompts().size(); ++i) {
    std::vector<test::ProcessOptions> kills = {KilledAtTheFirstToken()};
    for (int tenths = 4; tenths <= 10; ++tenths) kills.push_back(KilledAfter(length * tenths / 10));
    kills.push_back({});
    for (const test::ProcessOptions& options : kills) {
      const auto r = Ask(Prompts()[i], {}, options);
      // Killed behind the end of the line, the answer was through, and the same command would ask again.
      if (r.exit_code == 0 || r.out.ends_with('\n')) {
        EXPECT_EQ(r.out, Expected()[i]) << "turn " << i;
        break;
      }
      EXPECT_GT(r.exit_code, 128) << r.err;
      ++killed;
    }
  }
  EXPECT_GT(killed, 0);
}

TEST_F(RunSession, AnAnswerThatWasInterruptedIsFinishedBeforeAnotherPrompt) {
  ASSERT_EQ(Ask(Prompts()[0], {}, KilledAtTheFirstToken()).exit_code, 137);
  EXPECT_EQ(Ask(Prompts()[1]).out, Expected()[1]);
  EXPECT_EQ(Ask(Prompts()[2]).out, Expected()[2]);
}

TEST_F(RunSession, DrawnAnswersGoOnWithTheSameDraws) {
  const std::vector<std::string> drawn = {"--temperature", "1.2", "--seed", "7", "--repetition-penalty", "1.1"};
  ASSERT_EQ(Ask(Prompts()[0], drawn, KilledAtTheFirstToken()).exit_code, 137);
  EXPECT_EQ(Ask(Prompts()[0], drawn).out, Plain(Prompts()[0], drawn));
}

TEST_F(RunSession, AskedOtherwiseAnInterruptedAnswerBeginsAnew) {
  ASSERT_EQ(Ask(Prompts()[0], {}, KilledAtTheFirstToken()).exit_code, 137);
  const std::vector<std::string> drawn = {"--temperature", "1.2", "--seed", "7"};
  EXPECT_EQ(Ask(Prompts()[0], drawn).out, Plain(Prompts()[0], drawn));
}

TEST_F(RunSession, DamagedStateIsReadAgainWithAWarning) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  for (const char* name : {"s.state", "s.latents"}) {
    ASSERT_TRUE(fs::exists(Folder() / name));
    std::fstream file(Folder() / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(Folder() / name) / 2));
    file.put('\x5a').put('\x5a').put('\x5a').put('\x5a').put('\x5a');
  }
  const auto damaged = Ask(Prompts()[1]);
  EXPECT_EQ(damaged.exit_code, 0);
  EXPECT_EQ(damaged.out, Expected()[1]);
  EXPECT_NE(damaged.err.find("read again"), std::string::npos) << damaged.err;
  const auto next = Ask(Prompts()[2]);
  EXPECT_EQ(next.out, Expected()[2]);
  EXPECT_EQ(next.err, "");
}

TEST_F(RunSession, WithoutItsStateASessionIsReadAgain) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  fs::remove(Folder() / "s.state");
  const auto r = Ask(Prompts()[1]);
  EXPECT_EQ(r.out, Expected()[1]);
  EXPECT_EQ(r.err, "");
}

TEST_F(RunSession, HalfFilesOfProcessesThatDiedAreRemoved) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  std::ofstream(Folder() / "s.state.part-123") << "half";
  EXPECT_EQ(Ask(Prompts()[1]).out, Expected()[1]);
  EXPECT_FALSE(fs::exists(Folder() / "s.state.part-123"));
}

// Stopped with Ctrl-C it keeps what was said, as a chat does.
TEST_F(RunSession, AnAnswerThatWasStoppedStaysAsItIs) {
  test::ProcessOptions options;
  options.while_running = [](int pid) { kill(pid, SIGINT); };
  const auto stopped = Ask(Prompts()[0], {}, options);
  if (stopped.exit_code != 130) GTEST_SKIP() << "it was through before it was stopped";
  const auto next = Ask(Prompts()[1]);
  EXPECT_EQ(next.out, Plain(Prompts()[0] + "," + Commas(stopped.out) + "," + Prompts()[1]));
}

TEST_F(RunSession, ADamagedJournalIsPutAsideAndSaid) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  std::ofstream(Folder() / "journal", std::ios::trunc) << "nothing of the kind";
  const auto r = Ask(Prompts()[0]);
  EXPECT_EQ(r.out, Expected()[0]);
  EXPECT_NE(r.err.find("put aside"), std::string::npos) << r.err;
  EXPECT_TRUE(fs::exists(Folder() / "journal.damaged"));
}

TEST_F(RunSession, AJournalThatWasCutInTheMiddleKeepsWhatIsWhole) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  fs::resize_file(Folder() / "journal", fs::file_size(Folder() / "journal") - 121);
  const auto cut = Ask(Prompts()[0]);
  EXPECT_EQ(cut.out, Expected()[0]);  // an answer that lacks its end goes on
  EXPECT_NE(cut.err.find("cut short"), std::string::npos) << cut.err;
  EXPECT_TRUE(fs::exists(Folder() / "journal.damaged"));
  EXPECT_EQ(Ask(Prompts()[1]).out, Expected()[1]);
}

TEST_F(RunSession, AnotherInstructionSetReadsTheSameTokensAgain) {
  const std::vector<std::string> isas = test::UsableIsas();
  if (isas.size() < 2) GTEST_SKIP() << "one instruction set only";
  ASSERT_EQ(Ask(Prompts()[0], {"--isa", isas[0]}).exit_code, 0);
  const std::string history = Prompts()[0] + "," + Commas(Plain(Prompts()[0], {"--isa", isas[0]})) + "," + Prompts()[1];
  const auto other = Ask(Prompts()[1], {"--isa", isas[1]});
  EXPECT_EQ(other.out, Plain(history, {"--isa", isas[1]}));
  EXPECT_NE(other.err.find("cpu/" + isas[0]), std::string::npos) << other.err;
}

TEST_F(RunSession, AnotherModelHasAnotherSessionOfThatName) {
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  std::vector<std::string> nano = Arguments(Prompts()[1], {"--session", "talk", "--state-dir", state_.path()});
  nano[2] = test::NanoFolder();
  std::vector<std::string> plain = Arguments(Prompts()[1], {"--no-state"});
  plain[2] = test::NanoFolder();
  const auto r = Deltafin(nano);
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out, Deltafin(plain).out);
  EXPECT_NE(r.err.find("another model"), std::string::npos) << r.err;
  EXPECT_EQ(Ask(Prompts()[1]).out, Expected()[1]);
}

TEST_F(RunSession, IsRefusedWhereItCannotWork) {
  const auto refused = [&](std::vector<std::string> more, int code, const std::string& reason) {
    const auto r = Deltafin(Arguments("1,2", std::move(more)));
    EXPECT_EQ(r.exit_code, code);
    EXPECT_NE(r.err.find(reason), std::string::npos) << r.err;
  };
  refused({"--session", "a", "--no-state"}, 2, "--no-state");
  for (const char* name : {"a/b", "..", ".a", "-a", "a b", "a\n"})
    refused({std::string("--session=") + name, "--state-dir", state_.path()}, 2, "--session");
  refused({"--session", std::string(65, 'a'), "--state-dir", state_.path()}, 2, "--session");
  EXPECT_FALSE(fs::exists(state_.path() + "/sessions"));
  ASSERT_EQ(Ask(Prompts()[0]).exit_code, 0);
  const int fd = open(Folder().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  refused({"--session", "talk", "--state-dir", state_.path()}, 4, "another process");
  close(fd);
  const auto full = Ask(Prompts()[1], {"--context", std::to_string(kNew)});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_EQ(Ask(Prompts()[1]).out, Expected()[1]);  // the refused turn left nothing
}

// ---- chats ----

class ChatSession : public testing::Test {
 protected:
  test::ProcessResult Chat(const std::string& input, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"chat",          "--model", test::NanoFolder(), "--quiet",
                                          "--temperature", "0",       "--threads",        "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    test::ProcessOptions options;
    options.input = input;
    return Deltafin(arguments, options);
  }
  std::vector<std::string> Kept() const { return {"--session", "talk", "--state-dir", state_.path()}; }
  test::ProcessResult RunChat(const std::string& prompt, std::vector<std::string> more,
                              test::ProcessOptions options = {}) const {
    std::vector<std::string> arguments = {"run",      "--model", test::NanoFolder(), "--quiet", "--chat",
                                          "--prompt", prompt};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Deltafin(arguments, std::move(options));
  }

  const std::string japan_ = "What is the capital of Japan?", france_ = "What is the capital of France?";
  test::TempFolder state_;
};

TEST_F(ChatSession, TwoProcessesSayWhatOneWouldHaveSaid) {
  const auto whole = Chat(japan_ + "\n" + france_ + "\n" + japan_ + "\n", {"--no-state"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto first = Chat(japan_ + "\n", Kept());
  const auto second = Chat(france_ + "\n" + japan_ + "\n", Kept());
  EXPECT_EQ(first.out + second.out, whole.out);
  EXPECT_NE(second.out.find("Paris"), std::string::npos);
}

TEST_F(ChatSession, RunAndChatShareASession) {
  const auto whole = Chat(japan_ + "\n" + france_ + "\n", {"--no-state"});
  const auto run = RunChat(japan_, Kept());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto chat = Chat(france_ + "\n", Kept());
  EXPECT_EQ(run.out + chat.out, whole.out);
}

TEST_F(ChatSession, AnInterruptedAnswerGoesOnWhenTheChatBegins) {
  const auto whole = Chat(japan_ + "\n" + france_ + "\n", {"--no-state"});
  std::vector<std::string> more = Kept();
  more.push_back("--ids");
  test::ProcessOptions options;
  options.while_running = [](int pid) { kill(pid, SIGKILL); };
  const auto killed = RunChat(japan_, more, options);
  if (killed.exit_code != 137) GTEST_SKIP() << "it was through before it was killed";
  const auto chat = Chat(france_ + "\n", Kept());
  EXPECT_EQ(chat.out, whole.out);
  EXPECT_NE(chat.err.find("interrupted"), std::string::npos) << chat.err;
}

TEST_F(ChatSession, ResetForgetsItOnTheDriveToo) {
  ASSERT_EQ(Chat(japan_ + "\n/reset\n", Kept()).exit_code, 0);
  EXPECT_EQ(Chat(france_ + "\n", Kept()).out, Chat(france_ + "\n", {"--no-state"}).out);
}

TEST_F(ChatSession, TurnsThatWereForgottenStayForgotten) {
  std::vector<std::string> more = Kept();
  for (const char* argument : {"--context", "512"}) more.push_back(argument);
  std::string input;
  for (int i = 0; i < 12; ++i) input += japan_ + "\n";
  const auto whole = Chat(input + france_ + "\n", {"--no-state", "--context", "512"});
  std::string out = Chat(input, more).out;
  out += Chat(france_ + "\n", more).out;
  EXPECT_EQ(out, whole.out);
}

TEST_F(ChatSession, ARawSessionIsNoChatAndTheOtherWayRound) {
  ASSERT_EQ(Chat(japan_ + "\n", Kept()).exit_code, 0);
  std::vector<std::string> raw = {"run", "--model", test::NanoFolder(), "--quiet", "--prompt", "Once"};
  for (const std::string& argument : Kept()) raw.push_back(argument);
  const auto r = Deltafin(raw);
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("add --chat"), std::string::npos) << r.err;
  std::vector<std::string> system = Kept();
  system.push_back("--system");
  system.push_back("Be brief.");
  EXPECT_EQ(Chat(japan_ + "\n", system).exit_code, 2);
}

}  // namespace
}  // namespace deltafin
