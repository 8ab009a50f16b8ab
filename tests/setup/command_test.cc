// `deltafin setup` from outside: a model that answers, exit codes, streams, and a sudden end at any time.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "setup/hub_server.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

class SetupCommand : public testing::Test {
 protected:
  ProcessResult Run(std::vector<std::string> arguments, ProcessOptions options = {}) {
    arguments.push_back("--no-state");
    options.arguments = std::move(arguments);
    return RunProcess(DELTAFIN_PROGRAM, options);
  }
  std::vector<std::string> Command(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"setup", "--repo",  HubServer::kRepo, "--endpoint", server_.url(), "--proxy",
                                          "none",  "--range", "1MiB",           "--to",       to()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string to() const { return folder_.path() + "/nano"; }
  // The ids that the model writes to one of the prompts of record, and those it should.
  void ExpectAnswers(std::vector<std::string> more = {}) {
    const Json expected = *ReadJsonFile(RepoPath("models/k3-nano/expected_greedy.json"));
    const Json& first = expected[0];
    std::string prompt, ids;
    for (const Json& id : first["prompt_ids"]) prompt += Cat(prompt.empty() ? "" : ",", DumpJson(id));
    for (const Json& id : first["new_ids"]) ids += Cat(ids.empty() ? "" : " ", DumpJson(id));
    std::vector<std::string> arguments = {"run",          "--model",   to(),
                                          "--prompt-ids", prompt,      "--ids",
                                          "--quiet",      "--max-new", std::to_string(first["new_ids"].size())};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, Cat(ids, "\n"));
  }

  HubServer server_{HubServer::FilesOf(RepoPath("models/k3-nano"))};
  TempFolder folder_;
};

TEST_F(SetupCommand, AFetchedModelAnswers) {
  const ProcessResult result = Run(Command());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("deltafin chat --model"), std::string::npos) << result.err;
  ExpectAnswers();
}

TEST_F(SetupCommand, AModelThatWasPackedWhileItCameAnswersAndTheShardsGaveUpTheirExperts) {
  std::vector<std::string> drives = {folder_.path() + "/d1", folder_.path() + "/d2"};
  const ProcessResult result = Run(Command({"--pack-to", drives[0], "--pack-to", drives[1]}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  uintmax_t shards = 0;
  for (const auto& entry : fs::directory_iterator(to()))
    if (entry.path().extension() == ".safetensors") shards += entry.file_size();
  EXPECT_LT(shards, 20'000'000u);
  ExpectAnswers();
  EXPECT_EQ(Run({"verify", "--model", to()}).exit_code, 0);
  const ProcessResult again = Run(Command({"--pack-to", drives[0], "--pack-to", drives[1]}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST_F(SetupCommand, EventsAreLinesOfJsonThatEndWithDone) {
  const ProcessResult result = Run(Command({"--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::string last;
  for (size_t at = 0, end; (end = result.out.find('\n', at)) != std::string::npos; at = end + 1) {
    last = result.out.substr(at, end - at);
    const auto json = ParseJson(last, "line");
    ASSERT_TRUE(json && json->contains("event")) << last;
  }
  const Json done = *ParseJson(last, "line");
  EXPECT_EQ(done["event"], "done");
  EXPECT_EQ(done["commit"], HubServer::kCommit);
  EXPECT_EQ(done["bytes_received"], done["bytes_total"]);
}

TEST_F(SetupCommand, CtrlCKeepsWhatIsThere) {
  ProcessOptions options;
  options.while_running = [](int pid) { kill(pid, SIGINT); };
  const ProcessResult stopped = Run(Command({"--rate", "5MB/s"}), options);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("same command"), std::string::npos) << stopped.err;
  ASSERT_EQ(Run(Command()).exit_code, 0);
  ExpectAnswers();
}

TEST_F(SetupCommand, RefusalsHaveTheirExitCodes) {
  EXPECT_EQ(Run({"setup"}).exit_code, 2);
  EXPECT_EQ(Run({"setup", "--repo", "a/b"}).exit_code, 2);
  EXPECT_EQ(Run({"setup", "--from-folder", "/nowhere", "--to", to()}).exit_code, 3);
  EXPECT_EQ(Run({"setup", "--from-folder", to(), "--to", to(), "--mirror", "http://x"}).exit_code, 2);
  EXPECT_EQ(Run(Command({"--rate", "5"})).exit_code, 2);
  EXPECT_EQ(Run(Command({"--replicas", "5GB"})).exit_code, 2);
  EXPECT_EQ(Run(Command({"--revision", "none"})).exit_code, 3);
  EXPECT_EQ(Run({"setup", "--repo", "a/b", "--from-cache", folder_.path()}).exit_code, 3);
  server_.RequireToken("word");
  const ProcessResult refused = Run(Command());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--token-file"), std::string::npos) << refused.err;
  std::ofstream(folder_.path() + "/token") << "word\n";
  EXPECT_EQ(Run(Command({"--token-file", folder_.path() + "/token", "--dry-run"})).exit_code, 0);
}

TEST_F(SetupCommand, ADryRunNamesFilesAndRoom) {
  const ProcessResult result = Run(Command({"--dry-run"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("model-00010-of-000010.safetensors"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("needed"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(to()));
}

TEST_F(SetupCommand, ASnapshotOfTheHubsCacheIsUsedWhereItLies) {
  const fs::path repo = fs::path(folder_.path()) / "models--someone--model";
  const fs::path snapshot = repo / "snapshots" / HubServer::kCommit;
  fs::create_directories(snapshot);
  fs::create_directories(repo / "refs");
  std::ofstream(repo / "refs/main") << HubServer::kCommit;
  for (const auto& [name, contents] : server_.files())
    fs::create_symlink(RepoPath("models/k3-nano/" + name), snapshot / name);
  fs::create_symlink(snapshot, to());
  const ProcessResult result = Run({"setup", "--repo", HubServer::kRepo, "--from-cache", folder_.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find(snapshot.string()), std::string::npos) << result.err;
  ExpectAnswers();
}

}  // namespace
}  // namespace deltafin::test
