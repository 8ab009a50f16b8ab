// The program from outside, as scripts use it: streams, exit codes, ids, events, refusals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/platform.h"
#include "base/units.h"
#include "support/engine_runs.h"
#include "support/memory_limit.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

test::ProcessResult Deltafin(std::vector<std::string> arguments, test::ProcessOptions options = {}) {
  options.arguments = std::move(arguments);
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

std::string Joined(const Json& ids, const char* separator) {
  std::string text;
  for (const Json& id : ids) text += (text.empty() ? "" : separator) + std::to_string(id.get<int>());
  return text;
}

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

Json GreedyCases(const std::string& folder) {
  const Json file = *ReadJsonFile(folder + "/expected_greedy.json");
  return file.is_array() ? file : Json::array({file});
}

TEST(Run, IdsInIdsOutEqualTheReference) {
  const Json c = GreedyCases(test::MicroFolder())[0];
  const auto r = Deltafin({"run", "--model", test::MicroFolder(), "--prompt-ids", Joined(c["prompt_ids"], ","), "--ids",
                           "--max-new", std::to_string(c["new_ids"].size()), "--no-state"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, Joined(c["new_ids"], " ") + "\n");
}

TEST(Run, RawTextAndChatGiveTheReferencesIdsAndStopWhereItStops) {
  for (const Json& c : GreedyCases(test::NanoFolder())) {
    const bool chat = c["kind"] == "chat";
    std::vector<std::string> arguments = {"run",
                                          "--model",
                                          test::NanoFolder(),
                                          "--prompt",
                                          chat ? c["user"] : c["prompt"],
                                          "--ids",
                                          "--max-new",
                                          std::to_string(c["new_ids"].size()),
                                          "--no-state"};
    if (chat) {
      arguments.push_back("--chat");
      arguments.push_back("--reasoning-effort");
      arguments.push_back(c["reasoning_effort"].is_null() ? "none" : c["reasoning_effort"].get<std::string>());
    }
    const auto r = Deltafin(arguments);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.out, Joined(c["new_ids"], " ") + "\n") << c.dump();
  }
}

TEST(Run, ChatPrintsOnlyTheAnswerOnStdout) {
  const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--chat", "--reasoning-effort", "high", "--prompt",
                           "What is 12 + 30?", "--no-state"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out.find("<|"), std::string::npos);
  EXPECT_EQ(r.out.find("Add the ones"), std::string::npos);
  EXPECT_NE(r.out.find("42"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("memory plan"), std::string::npos);
}

TEST(Run, PromptComesFromStdinOrAFile) {
  test::ProcessOptions options;
  options.input = "The capital of France is";
  const auto piped = Deltafin({"run", "--model", test::NanoFolder(), "--no-state", "--quiet"}, options);
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_EQ(piped.out.rfind(" Paris.", 0), 0u) << piped.out;
  EXPECT_EQ(piped.err, "");
  const test::TempFolder folder;
  std::ofstream(folder.path() + "/p.txt") << options.input;
  const auto file = Deltafin(
      {"run", "--model", test::NanoFolder(), "--no-state", "--quiet", "--prompt-file", folder.path() + "/p.txt"});
  EXPECT_EQ(file.out, piped.out);
}

TEST(Run, JsonEventsCarryEveryKeyOfTheContract) {
  const auto r =
      Deltafin({"run", "--model", test::NanoFolder(), "--prompt", "The capital of France is", "--json", "--no-state"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const std::vector<Json> lines = Lines(r.out);
  ASSERT_GE(lines.size(), 2u);
  const Json& stats = lines.back();
  EXPECT_EQ(stats["event"], "stats");
  for (const char* key :
       {"prompt_tokens", "new_tokens", "seconds_load", "seconds_first_token", "tokens_per_second_steady",
        "tokens_per_second_inclusive", "layer_passes", "experts_distinct", "record_bytes", "expert_bytes_demand",
        "expert_bytes_prefetch_useful", "expert_bytes_prefetch_wasted", "dense_bytes_read", "cache_hits",
        "cache_misses", "peak_rss_bytes", "drives"})
    EXPECT_TRUE(stats.contains(key)) << key;
  EXPECT_EQ(stats["prompt_tokens"], 5);
  EXPECT_EQ(stats["new_tokens"], 13);
  EXPECT_EQ(stats["record_bytes"], 19584);  // from the shapes: 3 matrices of 96 x 128 in MXFP4
  EXPECT_EQ(stats["layer_passes"], 9 * 13);
  // With room for all experts each is read once: payload is misses times the record.
  EXPECT_EQ(stats["expert_bytes_demand"], stats["cache_misses"].get<int64_t>() * 19584);
  EXPECT_EQ(stats["experts_distinct"], stats["cache_misses"].get<int64_t>() + stats["cache_hits"].get<int64_t>());
  for (const char* key : {"name", "bytes", "seconds_busy"}) EXPECT_TRUE(stats["drives"][0].contains(key)) << key;
  std::string text;
  for (const Json& line : lines)
    if (line["event"] == "token") text += line.value("text", "");
  EXPECT_EQ(text.rfind(" Paris.", 0), 0u) << text;
}

TEST(Run, StopTextEndsTheAnswerBeforeIt) {
  const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--prompt", "The capital of France is", "--stop",
                           "ris", "--no-state", "--quiet"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out, " Pa\n");
}

TEST(Run, SameSeedSameTextAndOptionsThatWouldDoNothingAreRefused) {
  const std::vector<std::string> base = {
      "run", "--model", test::NanoFolder(), "--prompt", "Once upon a time", "--max-new",
      "12",  "--ids",   "--no-state",       "--quiet"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Deltafin(arguments);
  };
  const auto a = with({"--temperature", "1.5", "--seed", "7"});
  EXPECT_EQ(a.out, with({"--temperature", "1.5", "--seed", "7"}).out);
  EXPECT_NE(a.out, with({"--temperature", "1.5", "--seed", "8"}).out);
  const auto idle = with({"--top-p", "0.5"});
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_NE(idle.err.find("--temperature"), std::string::npos);
}

TEST(Run, AnAnswerThatCannotBeWrittenIsAnError) {
  test::ProcessOptions options;
  options.in_child = [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, STDOUT_FILENO);
  };
  for (const char* form : {"--ids", "--json", "--quiet"}) {
    const auto r = Deltafin(
        {"run", "--model", test::NanoFolder(), "--prompt", "hi", "--max-new", "3", "--no-state", form}, options);
    EXPECT_EQ(r.exit_code, 5) << form << r.err;
    EXPECT_NE(r.err.find("stdout"), std::string::npos) << form << r.err;
  }
  EXPECT_EQ(Deltafin({"inspect", "--model", test::NanoFolder()}, options).exit_code, 5);
}

TEST(Run, ThreadsThatTheSystemRefusesAreALackOfResources) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers reserve more address space than the limit";
  test::ProcessOptions options;
  options.in_child = [] {
    // Room for the program, not for the stacks of a hundred threads.
    const rlimit limit{uint64_t{500} << 20, uint64_t{500} << 20};
    setrlimit(RLIMIT_AS, &limit);
  };
  for (const char* io : {"uring", "pread"}) {
    const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--prompt", "hi", "--max-new", "3", "--no-state",
                             "--quiet", "--threads", "200", "--io", io},
                            options);
    EXPECT_EQ(r.exit_code, 4) << io << r.err;
    EXPECT_NE(r.err, "");
  }
}

TEST(Inspect, ATokenizerThatCannotBeReadIsAProblem) {
  const test::TempFolder folder;
  fs::copy(test::NanoFolder(), folder.path(), fs::copy_options::recursive);
  std::ofstream(folder.path() + "/tiktoken.model", std::ios::trunc) << "";
  const auto r = Deltafin({"inspect", "--model", folder.path()});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_NE(r.out.find("tiktoken.model"), std::string::npos) << r.out;
}

TEST(Logits, OutReplacesFilesOnlyAndFollowsLinks) {
  const test::TempFolder folder;
  const std::string target = folder.path() + "/target", link = folder.path() + "/link";
  std::ofstream(target) << "old";
  fs::create_symlink(target, link);
  const auto r = Deltafin({"logits", "--model", test::MicroFolder(), "--prompt-ids", "1", "--out", link, "--no-state"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_GT(fs::file_size(target), 100u);
}

TEST(Run, InvalidUtf8IsAcceptedAsBytes) {
  test::ProcessOptions options;
  options.input = "abc\xff\xfe\xc3(";
  const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--max-new", "4", "--no-state", "--quiet"}, options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
}

struct Refusal {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  std::string words;  // all of these, separated by |, must be in the message
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithTheExitCodeAndTheObjectNamed) {
  const Refusal& refusal = GetParam();
  const auto r = Deltafin(refusal.arguments);
  EXPECT_EQ(r.exit_code, refusal.exit_code) << r.err;
  EXPECT_EQ(r.out, "");
  std::istringstream words(refusal.words);
  for (std::string word; std::getline(words, word, '|');)
    EXPECT_NE(r.err.find(word), std::string::npos) << word << " in: " << r.err;
}

std::vector<std::string> RunWith(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", "--model", test::NanoFolder(), "--no-state", "--prompt", "hi"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> MicroWith(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", "--model", test::MicroFolder(), "--no-state"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        Refusal{"NoCommand", {}, 2, "subcommand"}, Refusal{"UnknownOption", RunWith({"--bogus"}), 2, "--bogus"},
        Refusal{"BareNumber", RunWith({"--memory", "8"}), 2, "--memory|unit"},
        Refusal{"MemoryBelowTheFloor", RunWith({"--memory", "20MB"}), 4, "--memory|at least"},
        Refusal{"CacheBelowTheFloor", RunWith({"--expert-cache", "1KB"}), 4, "--expert-cache|at least"},
        Refusal{"ContextBeyondTheModel", RunWith({"--context", "5000"}), 2, "--context|4096"},
        Refusal{"UnknownDevice", RunWith({"--device", "tpu"}), 2, "--device|tpu|cpu"},
        Refusal{"UnknownIsa", RunWith({"--isa", "sse9"}), 2, "sse9|avx2"},
        Refusal{"UnknownIo", RunWith({"--io", "mmap"}), 2, "--io|uring"},
        Refusal{"UnknownDenseMode", RunWith({"--dense-mode", "x"}), 2, "--dense-mode|stream"},
        Refusal{"PackedExperts", RunWith({"--experts", "/nowhere"}), 5, "--experts|/nowhere|mounted"},
        Refusal{"PackedDense", RunWith({"--dense", "/nowhere"}), 3, "--dense|/nowhere|no such folder"},
        Refusal{"DrafterOfTextAlone", RunWith({"--draft", "qwen"}), 2, "--draft qwen|--draft-model"},
        Refusal{"DrafterOfTextInAChat", RunWith({"--draft", "qwen", "--draft-model", "x", "--chat"}), 2,
                "--draft qwen|raw completion only|--draft auto"},
        Refusal{"UnknownDrafter", RunWith({"--draft", "eagle"}), 2, "--draft eagle|ngram"},
        Refusal{"DraftModelMissing", RunWith({"--draft", "dspark"}), 2, "--draft-model"},
        Refusal{"DraftModelUnused", RunWith({"--draft", "ngram", "--draft-model", "x"}), 2, "--draft-model"},
        Refusal{"DraftCount", RunWith({"--max-drafts", "8"}), 2, "--max-drafts|1 to 7"},
        Refusal{"DraftCountUnused", RunWith({"--draft", "off", "--max-drafts", "3"}), 2, "--max-drafts"},
        Refusal{"EffortMedium", RunWith({"--chat", "--reasoning-effort", "medium"}), 2, "--reasoning-effort|medium"},
        Refusal{"SystemWithoutChat", RunWith({"--system", "x"}), 2, "--chat"},
        Refusal{"TwoPrompts", RunWith({"--prompt-ids", "1"}), 2, "--prompt-ids"},
        Refusal{"IdsAndJson", RunWith({"--ids", "--json"}), 2, "--ids|--json"},
        Refusal{"MissingModel",
                {"run", "--model", "/nonexistent/model", "--prompt", "x", "--no-state"},
                3,
                "/nonexistent/model"},
        Refusal{"TextWithoutTokenizer", MicroWith({"--prompt", "hello"}), 3, "tiktoken.model"},
        Refusal{"TextOutWithoutTokenizer", MicroWith({"--prompt-ids", "1,2"}), 3, "tiktoken.model"},
        Refusal{"IdOutsideTheVocabulary", MicroWith({"--prompt-ids", "1,512", "--ids"}), 2, "512|511"},
        Refusal{"IdsThatAreNone", MicroWith({"--prompt-ids", "1,x", "--ids"}), 2, "--prompt-ids"},
        Refusal{"NoIds", MicroWith({"--prompt-ids", ",", "--ids"}), 2, "--prompt-ids"},
        Refusal{"EmptyPrompt", {"run", "--model", test::NanoFolder(), "--prompt", "", "--no-state"}, 2, "prompt"},
        Refusal{
            "EmptyIds", {"run", "--model", test::NanoFolder(), "--prompt-ids", "", "--no-state"}, 2, "--prompt-ids"},
        Refusal{"EmptyMemory", RunWith({"--memory", ""}), 2, "--memory"},
        Refusal{"NegativeSeed", RunWith({"--temperature", "1", "--seed", "-1"}), 2, "--seed"},
        Refusal{"HugeTopK", RunWith({"--temperature", "1", "--top-k", "99999999999999999999"}), 2, "--top-k"},
        Refusal{"HugeNew", RunWith({"--max-new", "18446744073709551616"}), 2, "--max-new"},
        Refusal{"EmptyStop", RunWith({"--stop", ""}), 2, "--stop"},
        Refusal{"ModelIsAFile", {"run", "--model", "/dev/null", "--prompt", "x", "--no-state"}, 3, "/dev/null"},
        Refusal{"OutInTheModelFolder",
                {"logits", "--model", test::MicroFolder(), "--prompt-ids", "1", "--out", test::MicroFolder() + "/x",
                 "--no-state"},
                2,
                "--out"},
        Refusal{"OutIsADevice",
                {"logits", "--model", test::MicroFolder(), "--prompt-ids", "1", "--out", "/dev/tty", "--no-state"},
                2,
                "/dev/tty"},
        Refusal{"PromptBeyondTheContext", MicroWith({"--prompt-ids", "1,2,3,4,5", "--ids", "--context", "4"}), 2,
                "--context"},
        Refusal{"ZeroNew", RunWith({"--max-new", "0"}), 2, "--max-new"}),
    [](const testing::TestParamInfo<Refusal>& info) { return info.param.name; });

TEST(Run, AShardThatIsCutIsNamed) {
  const test::TempFolder folder;
  fs::copy(test::MicroFolder(), folder.path(), fs::copy_options::recursive);
  const std::string shard = folder.path() + "/model-00003-of-000007.safetensors";
  fs::permissions(shard, fs::perms::owner_all);
  fs::resize_file(shard, fs::file_size(shard) - 1000);
  const auto r = Deltafin({"run", "--model", folder.path(), "--prompt-ids", "1,2", "--ids", "--no-state"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_NE(r.err.find("model-00003-of-000007.safetensors"), std::string::npos) << r.err;
}

TEST(Run, AScaleThatIsNotANumberEndsTheRequestNamingItsPlace) {
  const test::TempFolder folder;
  fs::copy(test::MicroFolder(), folder.path(), fs::copy_options::recursive);
  // Every scale byte of layer 1, expert 0's w2 (by name from the header) becomes 255 in all experts: some expert is
  // met.
  const std::string shard = folder.path() + "/model-00002-of-000007.safetensors";
  fs::permissions(shard, fs::perms::owner_all);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string text(header_bytes, ' ');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const Json header = Json::parse(text);
  for (const auto& [name, tensor] : header.items()) {
    if (name.find("w2.weight_scale") == std::string::npos) continue;
    file.seekp(static_cast<std::streamoff>(8 + header_bytes + tensor["data_offsets"][0].get<uint64_t>() + 5));
    file.put('\xff');
  }
  file.close();
  const auto r = Deltafin({"run", "--model", folder.path(), "--prompt-ids", "1,2", "--ids", "--no-state"});
  EXPECT_EQ(r.exit_code, 3);
  for (const char* word : {"layer 1", "expert", "w2", "row", "255"})
    EXPECT_NE(r.err.find(word), std::string::npos) << word << ": " << r.err;
}

TEST(Interrupt, CtrlCEndsARunCleanlyWith130) {
  test::ProcessOptions options;
  options.while_running = [](int pid) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(pid, SIGINT);
  };
  // A run of 4000 tokens that would take much longer.
  const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--prompt", "Once upon a time", "--ids", "--no-state",
                           "--quiet", "--device", "reference"},
                          options);
  EXPECT_EQ(r.exit_code, 130);
  EXPECT_FALSE(r.out.empty());
  EXPECT_EQ(r.out.back(), '\n');
}

// Peak resident memory stays within the plan + 5 %, and the run ends well under a hard limit of just that much.
class PlanUnderALimit : public testing::TestWithParam<std::string> {};

TEST_P(PlanUnderALimit, IsKept) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers multiply memory";
  const auto refused = Deltafin({"run", "--model", test::NanoFolder(), "--prompt", "x", "--memory", "1MB", "--no-state",
                                 "--dense-mode", GetParam()});
  EXPECT_EQ(refused.exit_code, 4);
  const size_t at = refused.err.find("at least ");
  ASSERT_NE(at, std::string::npos) << refused.err;
  const std::string floor = refused.err.substr(at + 9, refused.err.find(' ', at + 9) - at - 9);
  const auto limit_bytes = static_cast<uint64_t>(1.05 * static_cast<double>(*ParseSize(floor)));

  const test::MemoryLimit limit(limit_bytes);
  test::ProcessOptions options;
  options.in_child = limit.Enter();
  for (int i = 0; i < 400; ++i) options.input += "word ";
  const auto r = Deltafin({"run", "--model", test::NanoFolder(), "--max-new", "40", "--memory", floor, "--dense-mode",
                           GetParam(), "--json", "--no-state"},
                          options);
  ASSERT_EQ(r.exit_code, 0) << limit.kind() << ": " << r.err;
  EXPECT_LE(Lines(r.out).back()["peak_rss_bytes"].get<uint64_t>(), limit_bytes) << r.err;
}

INSTANTIATE_TEST_SUITE_P(Modes, PlanUnderALimit, testing::Values("auto", "resident", "stream"));

// Whatever the budget, a long prompt stays inside of it: less memory makes chunks shorter, and the same answer.
TEST(LongPrompt, StaysWithinEveryBudget) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers multiply memory";
  std::string ids;
  for (int i = 0; i < 4000; ++i) {
    if (i > 0) ids += ',';
    ids += std::to_string((i * 37 + i / 50) % 7900);
  }
  const auto run = [&](uint64_t memory) {
    const test::MemoryLimit limit(memory + memory / 20);
    test::ProcessOptions options;
    options.in_child = limit.Enter();
    return Deltafin({"run", "--model", test::NanoFolder(), "--prompt-ids", ids, "--max-new", "2", "--memory",
                     std::to_string(memory / 1000) + "KB", "--json", "--no-state"},
                    options);
  };
  const auto refused = Deltafin(
      {"run", "--model", test::NanoFolder(), "--prompt-ids", ids, "--max-new", "2", "--memory", "1MB", "--no-state"});
  EXPECT_EQ(refused.exit_code, 4);
  const size_t at = refused.err.find("at least ");
  ASSERT_NE(at, std::string::npos) << refused.err;
  const uint64_t floor = *ParseSize(refused.err.substr(at + 9, refused.err.find(' ', at + 9) - at - 9));
  std::vector<int> answers;
  uint64_t passes = UINT64_MAX;
  for (const uint64_t more : {0, 5, 30, 2000}) {
    const uint64_t memory = floor + more * 1'000'000;
    const auto r = run(memory);
    ASSERT_EQ(r.exit_code, 0) << more << ": " << r.err;
    const std::vector<Json> lines = Lines(r.out);
    EXPECT_LE(lines.back()["peak_rss_bytes"].get<uint64_t>(), memory + memory / 20) << more;
    EXPECT_LE(lines.back()["layer_passes"].get<uint64_t>(), passes) << "more memory, more passes";
    passes = lines.back()["layer_passes"].get<uint64_t>();
    for (const Json& line : lines)
      if (line["event"] == "token") answers.push_back(line["id"].get<int>());
  }
  EXPECT_EQ(passes, 2 * 9u) << "one chunk, and one more token";
  ASSERT_EQ(answers.size(), 8u);
  for (size_t i = 2; i < answers.size(); ++i) EXPECT_EQ(answers[i], answers[i % 2]);
}

TEST(Logits, WritesEveryNameOfTheGoldenFile) {
  const test::TempFolder folder;
  const std::string out = folder.path() + "/o.safetensors";
  const auto r = Deltafin({"logits", "--model", test::MicroFolder(), "--prompt-ids", "17,65,161", "--then-ids", "5,6",
                           "--taps", "--out", out, "--no-state"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::ifstream file(out, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string text(header_bytes, ' ');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const Json header = Json::parse(text);
  std::ifstream golden(test::MicroFolder() + "/expected.golden", std::ios::binary);
  golden.read(reinterpret_cast<char*>(&header_bytes), 8);
  text.assign(header_bytes, ' ');
  golden.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const Json expected = Json::parse(text);
  for (const auto& [name, tensor] : expected.items()) {
    ASSERT_TRUE(header.contains(name)) << name;
    EXPECT_EQ(header[name]["dtype"], tensor["dtype"]) << name;
    EXPECT_EQ(header[name]["shape"].size(), tensor["shape"].size()) << name;
  }
  EXPECT_EQ(header["next_logits"]["shape"], Json::array({2, 512}));
}

TEST(Inspect, TellsCompleteFromIncomplete) {
  const auto whole = Deltafin({"inspect", "--model", test::NanoFolder(), "--json"});
  EXPECT_EQ(whole.exit_code, 0);
  EXPECT_EQ(Json::parse(whole.out)["complete"], true);
  const test::TempFolder folder;
  fs::copy(test::MicroFolder(), folder.path(), fs::copy_options::recursive);
  fs::remove(folder.path() + "/model-00004-of-000007.safetensors");
  const auto part = Deltafin({"inspect", "--model", folder.path(), "--json"});
  EXPECT_EQ(part.exit_code, 3);
  const Json report = Json::parse(part.out);
  EXPECT_EQ(report["complete"], false);
  EXPECT_EQ(report["shards_missing"], 1);
  EXPECT_EQ(Deltafin({"inspect", "--model", "/nonexistent"}).exit_code, 3);
}

TEST(Chat, RemembersTheConversationAndLeavesAtTheEndOfInput) {
  test::ProcessOptions options;
  options.input = "What is the capital of Japan?\n/nonsense\n/reset\nWhat is the capital of France?\n";
  const auto r = Deltafin({"chat", "--model", test::NanoFolder(), "--no-state", "--quiet"}, options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("Tokyo"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("Paris"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("unknown command"), std::string::npos);
  EXPECT_EQ(r.out.find("<|"), std::string::npos);
}

TEST(Chat, ForgetsWholeTurnsWhenTheContextIsFullAndRefusesWhatCannotFit) {
  test::ProcessOptions options;
  for (int i = 0; i < 12; ++i) options.input += "What is the capital of Japan?\n";
  options.input += std::string(3000, 'x') + "\nWhat is the capital of France?\n";
  const auto r =
      Deltafin({"chat", "--model", test::NanoFolder(), "--no-state", "--quiet", "--context", "512"}, options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("forgotten"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("too long"), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("Paris"), std::string::npos);
}

TEST(State, HeadersAreKeptInTheStateFolderAndNothingIsWrittenToTheModel) {
  const test::TempFolder state;
  const auto before = fs::last_write_time(test::MicroFolder());
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(Deltafin({"run", "--model", test::MicroFolder(), "--prompt-ids", "1", "--ids", "--max-new", "1",
                        "--state-dir", state.path()})
                  .exit_code,
              0);
  EXPECT_FALSE(fs::is_empty(state.path()));
  EXPECT_EQ(fs::last_write_time(test::MicroFolder()), before);
}

TEST(Version, NamesTheUnicodeTables) {
  const auto r = Deltafin({"--version"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_NE(r.out.find("Unicode 15.0"), std::string::npos) << r.out;
}

TEST(Help, IsThereForEveryCommand) {
  for (const char* command : {"run", "chat", "logits", "inspect", "synth"}) {
    const auto r = Deltafin({command, "--help"});
    EXPECT_EQ(r.exit_code, 0) << command;
    EXPECT_NE(r.out.find("--"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace deltafin
