// --draft from outside: the same answer with it and without it, what it did in the figures, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "support/engine_runs.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

// Text that repeats what it was given is drafted.
constexpr const char* kPrompt =
    "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog sat on the log. The cat sat on";

test::ProcessResult RunNano(std::vector<std::string> more) {
  test::ProcessOptions options;
  options.arguments = {"run", "--model", test::NanoFolder(), "--no-state", "--prompt", kPrompt, "--max-new", "48"};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

Json LastLine(const std::string& text) {
  std::istringstream in(text);
  std::string line, last;
  while (std::getline(in, line)) last = line;
  return Json::parse(last);
}

TEST(Draft, EveryModeGivesTheSameAnswer) {
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{}, {"--temperature", "1", "--seed", "4", "--repetition-penalty", "1.1"}}) {
    const auto run = [&](std::vector<std::string> more) {
      more.insert(more.end(), sampling.begin(), sampling.end());
      more.push_back("--ids");
      const auto r = RunNano(more);
      EXPECT_EQ(r.exit_code, 0) << r.err;
      return r.out;
    };
    const std::string plain = run({"--draft", "off"});
    EXPECT_GT(plain.size(), 48u);
    EXPECT_EQ(run({}), plain);
    EXPECT_EQ(run({"--draft", "auto", "--max-drafts", "3"}), plain);
    EXPECT_EQ(run({"--draft", "ngram"}), plain);
    EXPECT_EQ(run({"--draft", "ngram", "--max-drafts", "1"}), plain);
  }
}

TEST(Draft, TheFiguresTellWhatItDid) {
  const auto r = RunNano({"--draft", "ngram", "--json", "--stats"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json stats = LastLine(r.out);
  ASSERT_EQ(stats["event"], "stats");
  const Json& drafts = stats["drafts"];
  ASSERT_TRUE(drafts.is_object());
  uint64_t tokens = 0;
  for (const Json& steps : drafts["steps"]) tokens += steps["tokens"].get<uint64_t>();
  // All but the first, which comes from the prompt.
  EXPECT_EQ(tokens + 1, stats["new_tokens"].get<uint64_t>());
  EXPECT_EQ(drafts["drafters"][0]["name"], "ngram");
  EXPECT_GT(drafts["drafters"][0]["proposals"].get<uint64_t>(), 0u);
  EXPECT_LE(drafts["drafters"][0]["right"].get<uint64_t>(), drafts["drafters"][0]["drafted"].get<uint64_t>());
  EXPECT_NE(r.err.find("drafting"), std::string::npos) << "the plan has a row for it: " << r.err;
  EXPECT_FALSE(LastLine(RunNano({"--draft", "off", "--json"}).out).contains("drafts"));
}

TEST(Draft, WithoutRoomAutoIsOffAndSaysSo) {
  const auto r = RunNano({"--chunk", "1"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.err.find("off: there is no room for it"), std::string::npos) << r.err;
  const auto named = RunNano({"--chunk", "1", "--draft", "ngram"});
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_NE(named.err.find("--chunk"), std::string::npos) << named.err;
}

TEST(Draft, AModelThatCannotDraftIsRefusedByNameAndLeftOutByAuto) {
  const std::string no_drafter = test::RepoPath("models/k3-nano");
  const auto named = RunNano({"--draft", "dspark", "--draft-model", no_drafter});
  EXPECT_EQ(named.exit_code, 3) << named.err;
  EXPECT_NE(named.err.find("--draft-model"), std::string::npos) << named.err;
  const auto left_out = RunNano({"--draft-model", no_drafter});
  EXPECT_EQ(left_out.exit_code, 0) << left_out.err;
  EXPECT_NE(left_out.err.find("goes on without it"), std::string::npos) << left_out.err;
}

TEST(Draft, AFolderThatIsNotThereIsAnErrorAlsoForAuto) {
  for (const char* mode : {"auto", "dspark"}) {
    const auto r = RunNano({"--draft", mode, "--draft-model", "/nowhere"});
    EXPECT_EQ(r.exit_code, 3) << r.err;
    EXPECT_NE(r.err.find("--draft-model /nowhere"), std::string::npos) << r.err;
  }
}

TEST(Draft, AQwenModelDraftsRawCompletionAndLeavesChatsToOthers) {
  const std::string folder = test::RepoPath("models/qwen3-nano");
  const std::string plain = RunNano({"--draft", "off", "--ids"}).out;
  EXPECT_GT(plain.size(), 48u);
  const auto named = RunNano({"--draft", "qwen", "--draft-model", folder, "--ids", "--stats"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(named.out, plain);
  EXPECT_NE(named.err.find("draft model"), std::string::npos) << "the plan has a row for it: " << named.err;
  EXPECT_EQ(RunNano({"--draft-model", folder, "--ids"}).out, plain);
  const Json stats = LastLine(RunNano({"--draft-model", folder, "--json"}).out);
  EXPECT_EQ(stats["drafts"]["drafters"][1]["name"], "qwen");
  const auto chat = RunNano({"--draft-model", folder, "--chat"});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_NE(chat.err.find("goes on without it"), std::string::npos) << chat.err;
  const auto other = RunNano({"--draft", "dspark", "--draft-model", folder});
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_NE(other.err.find("--draft qwen"), std::string::npos) << other.err;
}

TEST(Draft, IdsAloneAreDraftedByAQwenModelToo) {
  const std::vector<std::string> base = {"run",          "--model",   test::NanoFolder(), "--no-state", "--ids",
                                         "--prompt-ids", "464,12,77", "--max-new",        "24",         "--draft"};
  const auto run = [&](std::vector<std::string> more) {
    test::ProcessOptions options;
    options.arguments = base;
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    const auto r = test::RunProcess(DELTAFIN_PROGRAM, options);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.out;
  };
  EXPECT_EQ(run({"qwen", "--draft-model", test::RepoPath("models/qwen3-nano")}), run({"off"}));
}

TEST(Draft, CommandsThatGenerateNothingRefuseIt) {
  const test::TempFolder folder;
  test::ProcessOptions options;
  options.arguments = {"logits",     "--model", test::MicroFolder(),       "--prompt-ids", "1",
                       "--no-state", "--out",   folder.path() + "/logits", "--draft",      "ngram"};
  const auto r = test::RunProcess(DELTAFIN_PROGRAM, options);
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_NE(r.err.find("--draft"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace deltafin
