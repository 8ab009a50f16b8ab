// `deltafin bench run` and `bench compare` from outside, on k3-nano.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/bench_arms.h"
#include "app/bench_prompts.h"
#include "base/json.h"
#include "bench/run_protocol.h"
#include "io/drive_list.h"
#include "support/process.h"
#include "support/test_data.h"
#include "text/tokenizer.h"

namespace deltafin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string& Nano() {
  static const std::string folder = test::RepoPath("models/k3-nano");
  return folder;
}

test::ProcessResult Bench(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.arguments.insert(options.arguments.begin(), "bench");
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

test::ProcessResult RunBench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"run", "--model", Nano(), "--quiet", "--threads", "1"});
  return Bench(std::move(arguments));
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(BenchRun, MeasuresArmsColdWritesReportsAndComparesThem) {
  const test::TempFolder out;
  const auto r = RunBench({"--arm", "plain:--draft off --prefetch off", "--arm", "drafts:--draft ngram --max-drafts 3",
                           "--rounds", "2", "--lengths", "5,17", "--out", out.path() + "/new", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json json = Json::parse(r.out);
  EXPECT_EQ(json["state"], "complete");
  EXPECT_EQ(json["runs"].size(), 2u + 2u * 2u * 3u);  // warm-ups; essay-5, essay-17 and long-1
  ASSERT_EQ(json["results"].size(), 6u);
  for (const Json& result : json["results"]) {
    EXPECT_EQ(result["rounds"], Json({1, 2}));
    EXPECT_GT(result["tokens_per_second_inclusive"]["median"].get<double>(), 0);
    EXPECT_GT(result["device_bytes"].get<double>(), 0);
    EXPECT_EQ(result["tokens_per_second_steady"].is_null(), result["new_tokens"] == 1);
    EXPECT_EQ(result["prompt_tokens"] == 512, result["prompt"] == "long");
    double parts = 0, computing = 0;
    for (const auto& [name, part] : result["seconds_by_part"].items()) {
      parts += part["prompt"].get<double>();
      if (name == "routed experts" || name == "head") computing += part["prompt"].get<double>();
    }
    EXPECT_GT(computing, 0);
    EXPECT_LT(parts, 1.5 * result["seconds_first_token"]["max"].get<double>());
  }
  EXPECT_EQ(json["results"][0]["ids_sha256"], json["results"][3]["ids_sha256"]);
  EXPECT_FALSE(json["program"]["commit"].get<std::string>().empty());
  EXPECT_FALSE(json["machine"]["processor"].get<std::string>().empty());
  EXPECT_EQ(json["runs"][0]["warm_up"], true);
  // What is on the drive is what was printed.
  EXPECT_EQ(ReadAll(out.path() + "/new/bench.json"), r.out);
  EXPECT_THAT(ReadAll(out.path() + "/new/bench.html"), HasSubstr("Where the time goes"));
  EXPECT_THAT(ReadAll(out.path() + "/new/bench.md"), HasSubstr("| drafts | essay"));

  const std::string folder = out.path() + "/new";
  const auto c = Bench({"compare", folder, folder + "/bench.json", "--arm-a", "plain", "--arm-b", "drafts", "--json"});
  ASSERT_EQ(c.exit_code, 0) << c.err;
  EXPECT_EQ(Json::parse(c.out)["cases"].size(), 3u);
  EXPECT_EQ(Bench({"compare", folder, folder}).exit_code, 2);
  EXPECT_EQ(Bench({"compare", folder, "/nowhere.json"}).exit_code, 3);
}

TEST(BenchRun, IsVoidedByAnAnswerThatWasNotExpected) {
  const test::TempFolder out;
  const std::vector<std::string> common = {"--prompts", "code", "--lengths", "5", "--rounds", "1", "--warm-ups", "0"};
  std::vector<std::string> first = common;
  first.insert(first.end(), {"--out", out.path()});
  ASSERT_EQ(RunBench(first).exit_code, 0);
  std::vector<std::string> again = common;
  again.insert(again.end(), {"--expect-file", out.path(), "--json"});
  const auto good = RunBench(again);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const std::string hash = Json::parse(good.out)["results"][0]["ids_sha256"];

  // The same file, tampered with.
  std::string text = ReadAll(out.path() + "/bench.json");
  for (size_t at; (at = text.find(hash)) != std::string::npos;) text[at] = text[at] == '0' ? '1' : '0';
  std::ofstream(out.path() + "/bench.json") << text;
  const auto voided = RunBench(again);
  EXPECT_EQ(voided.exit_code, 6);
  const Json json = Json::parse(voided.out);
  EXPECT_EQ(json["state"], "voided");
  EXPECT_TRUE(json["results"].empty());
  EXPECT_THAT(voided.err, HasSubstr("voided: arm default, code-5, round 1: expected ids with SHA-256"));

  std::vector<std::string> by_hash = common;
  by_hash.insert(by_hash.end(), {"--expect", "code-5=" + hash});
  EXPECT_EQ(RunBench(by_hash).exit_code, 0);
  by_hash.back() = "code-5=" + std::string(64, '0');
  EXPECT_EQ(RunBench(by_hash).exit_code, 6);
  by_hash.back() = "code-5=12";
  EXPECT_EQ(RunBench(by_hash).exit_code, 2);
  by_hash.back() = "code-6=" + hash;
  EXPECT_EQ(RunBench(by_hash).exit_code, 2);
}

// The real program, and a model whose weights are changed on the drive between two runs.
TEST(BenchRun, IsVoidedByAModelThatChangesWhileItRuns) {
  const test::TempFolder out;
  const std::string model = out.path() + "/model";
  fs::copy(Nano(), model, fs::copy_options::recursive);
  const auto tokenizer = Tokenizer::Load(model);
  ASSERT_TRUE(tokenizer);
  ProtocolOptions options;
  options.arms = {{"first", {}, false}, {"second", {}, false}};
  options.prompts = *MakeBenchPrompts({{"essay"}, {}, {12}}, &*tokenizer, tokenizer->vocab_size());
  options.rounds = 1;
  options.runner = CreateChildRunner(DELTAFIN_PROGRAM, {"--model=" + model, "--threads=1"});
  options.after_run = [&](const BenchResult&) {
    // A quarter of the bytes behind the header of every shard that starts with dense weights: finite BF16 values.
    for (const auto& entry : fs::directory_iterator(model)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto size = static_cast<std::streamoff>(fs::file_size(entry.path()));
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(size / 2);
      file << std::string(static_cast<size_t>(size / 4), '\x3c');
    }
  };
  BenchResult result;
  const Status ran = RunProtocol(options, &result);
  ASSERT_TRUE(ran) << ran.error().message();
  EXPECT_EQ(result.state, BenchState::kVoided);
  EXPECT_THAT(result.reason, HasSubstr("arm second, essay-12, round 1: token "));
}

TEST(BenchRun, LeavesAMarkedPartWhenItIsInterrupted) {
  const test::TempFolder out;
  test::ProcessOptions options;
  options.arguments = {"bench",     "run",  "--model",   Nano(),  "--out",    out.path(), "--lengths", "3500",
                       "--context", "4096", "--prompts", "essay", "--rounds", "50",       "--threads", "1"};
  const std::string file = out.path() + "/bench.json";
  options.arguments.insert(options.arguments.end(), {"--json", "--draft", "off"});
  // It says nothing before it ends, so the signal comes from beside it.
  std::atomic<bool> ended{false};
  std::thread stopper([&] {
    for (int i = 0; i < 600 && !ended; ++i) {
      if (fs::exists(file)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        for (const auto& entry : fs::directory_iterator("/proc")) {
          const std::string line = ReadAll(entry.path().string() + "/cmdline");
          if (line.find("bench") != std::string::npos && line.find(out.path()) != std::string::npos)
            kill(std::stoi(entry.path().filename().string()), SIGINT);
        }
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const auto r = test::RunProcess(DELTAFIN_PROGRAM, options);
  ended = true;
  stopper.join();
  EXPECT_EQ(r.exit_code, 130) << r.err;
  const Json json = Json::parse(ReadAll(file));
  EXPECT_EQ(json["state"], "partial");
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("interrupted"));
  EXPECT_THAT(ReadAll(out.path() + "/bench.md"), HasSubstr("PARTIAL"));
}

TEST(BenchRun, KeepsWhatItMeasuredWhenTheReportsCannotBeWritten) {
  const test::TempFolder out;
  test::ProcessOptions options;
  options.arguments = {"bench",     "run", "--model",  Nano(), "--out",      out.path(), "--prompts", "essay",
                       "--lengths", "3",   "--rounds", "1",    "--warm-ups", "0",        "--threads", "1"};
  options.in_child = [] {
    const rlimit most{1000, 1000};  // as a drive that is full
    setrlimit(RLIMIT_FSIZE, &most);
  };
  const auto r = test::RunProcess(DELTAFIN_PROGRAM, options);
  EXPECT_EQ(r.exit_code, 5) << r.err;
  EXPECT_THAT(r.err, HasSubstr(out.path() + "/bench.json: cannot write"));
  EXPECT_THAT(r.out, HasSubstr("| default | essay"));
  EXPECT_FALSE(fs::exists(out.path() + "/bench.json.part"));
}

TEST(BenchRun, DoesNotWriteOverAnEarlierResult) {
  const test::TempFolder out;
  std::ofstream(out.path() + "/bench.json") << "kept";
  const auto r = RunBench({"--out", out.path()});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.err, HasSubstr("holds a result already"));
  EXPECT_EQ(ReadAll(out.path() + "/bench.json"), "kept");
}

TEST(BenchRun, RefusesWhatItCannotDo) {
  const auto refused = [](std::vector<std::string> arguments, const char* why) {
    const auto r = RunBench(std::move(arguments));
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_THAT(r.err, HasSubstr(why));
  };
  refused({"--arm", ":--draft off"}, "NAME");
  refused({"--arm", "a", "--arm", "a"}, "twice");
  refused({"--arm", "a:--model /x"}, "--arm a: --model");
  refused({"--arm", "a:--draft maybe"}, "maybe");
  refused({"--arm", "a:--no-such-option"}, "--arm a");
  refused({"--arm", "a:--dense 'x"}, "quote");
  refused({"--inexact", "b"}, "--inexact b");
  refused({"--prompts", "poem"}, "poem");
  refused({"--prompt-file", "/nowhere"}, "/nowhere");
  refused({"--state-dir", "/tmp"}, "--state-dir");
  EXPECT_EQ(RunBench({"--expect-file", Nano() + "/config.json"}).exit_code, 3);
  EXPECT_EQ(Bench({"run", "--model", "/nowhere"}).exit_code, 3);
  EXPECT_EQ(RunBench({"--out", "/proc/nowhere"}).exit_code, 5);
}

// A second arm that cannot start must not cost the first one's runs.
TEST(BenchRun, ChecksEveryArmBeforeTheFirstRun) {
  for (const char* options : {"--isa foo", "--device cuda", "--max-drafts 9", "--verify-reads", "--check-twice",
                              "--context 100", "--memory 1MB", "--dense /nowhere", "--draft-model /nowhere"}) {
    const test::TempFolder out;
    const auto r = RunBench({"--arm", "good:--draft off", "--arm", std::string("bad:") + options, "--rounds", "2",
                             "--out", out.path() + "/new"});
    EXPECT_NE(r.exit_code, 0) << options;
    EXPECT_THAT(r.err, HasSubstr("--arm bad: ")) << options;
    EXPECT_FALSE(fs::exists(out.path() + "/new")) << options;
  }
}

TEST(BenchRun, RefusesLengthsThatWouldDoNothing) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--prompts", "long", "--lengths", "5"},
        std::vector<std::string>{"--quick", "--lengths", "3"}, std::vector<std::string>{"--quick", "--rounds", "3"}}) {
    const auto r = RunBench(options);
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_TRUE(r.out.empty());
  }
}

// On a real drive the kernel's counter says at least what the program read, of files that were cold.
TEST(BenchRun, CountsWhatTheKernelReadFromTheDrive) {
  const test::TempFolder out;
  const std::string model = out.path() + "/model";
  fs::copy(Nano(), model, fs::copy_options::recursive);
  const auto drive = DriveOfFolder(model);
  if (!drive || drive->counters.empty()) GTEST_SKIP() << "the temporary files lie on no drive that the kernel counts";
  const auto r = Bench({"run", "--model", model, "--quiet", "--threads", "1", "--prompts", "code", "--lengths", "5",
                        "--rounds", "1", "--warm-ups", "0", "--io", "pread", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json result = Json::parse(r.out)["results"][0];
  ASSERT_TRUE(result["kernel_bytes"].is_number()) << r.out.substr(0, 2000);
  const double own = result["device_bytes"].get<double>(), kernel = result["kernel_bytes"].get<double>();
  EXPECT_GT(own, 1e6);
  EXPECT_GE(kernel, 0.95 * own);
}

TEST(BenchPrompts, AreFixedAndLongEnough) {
  const auto tokenizer = Tokenizer::Load(Nano());
  ASSERT_TRUE(tokenizer);
  const auto prompts = MakeBenchPrompts({BuiltInPromptNames(), {}, {128, 17}}, &*tokenizer, tokenizer->vocab_size());
  ASSERT_TRUE(prompts) << prompts.error().message();
  ASSERT_EQ(prompts->size(), 4u);
  for (const BenchPrompt& prompt : *prompts) {
    EXPECT_EQ(prompt.name == "long", prompt.ids.size() == 512) << prompt.name;
    EXPECT_EQ(prompt.ids_sha256, IdsSha256(prompt.ids));
    EXPECT_EQ(prompt.lengths, prompt.name == "long" ? std::vector<int64_t>{1} : (std::vector<int64_t>{17, 128}));
  }
  const auto ids = MakeBenchPrompts({{"essay", "long"}, {}, {17}}, nullptr, 100);
  ASSERT_TRUE(ids);
  for (const TokenId id : ids->at(1).ids) EXPECT_LT(id, 75);
  EXPECT_NE(ids->at(0).ids_sha256, ids->at(1).ids_sha256);
}

TEST(SplitWords, KeepsWhatIsQuotedTogether) {
  EXPECT_THAT(*SplitWords(" --a  'b c' d\"e f\"g '' "), ElementsAre("--a", "b c", "de fg", ""));
  EXPECT_FALSE(SplitWords("'open"));
}

TEST(Run, GoesOnBehindTheEndWhenItIsAskedTo) {
  test::ProcessOptions options;
  options.arguments = {"run",       "--model", Nano(),       "--prompt", "The capital of France is",
                       "--max-new", "40",      "--no-state", "--quiet",  "--ids"};
  const auto count = [](const std::string& ids) { return std::count(ids.begin(), ids.end(), ' ') + 1; };
  const auto plain = test::RunProcess(DELTAFIN_PROGRAM, options);
  options.arguments.push_back("--ignore-end");
  const auto all = test::RunProcess(DELTAFIN_PROGRAM, options);
  EXPECT_EQ(count(plain.out), 13);  // models/k3-nano/expected_greedy.json
  EXPECT_EQ(count(all.out), 40);
  EXPECT_EQ(all.out.substr(0, plain.out.size() - 1), plain.out.substr(0, plain.out.size() - 1));
  options.arguments.push_back("--chat");
  EXPECT_EQ(test::RunProcess(DELTAFIN_PROGRAM, options).exit_code, 2);
  options.arguments = {"run", "--model", Nano(), "--prompt", "a", "--time-operations"};
  EXPECT_EQ(test::RunProcess(DELTAFIN_PROGRAM, options).exit_code, 2);
}

}  // namespace
}  // namespace deltafin
