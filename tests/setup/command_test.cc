// `deltafin setup` from outside: a model that answers, exit codes, streams, and a sudden end at any time.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "setup/hub_server.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

void FlipByte(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

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

TEST_F(SetupCommand, ASetThatIsLostIsNoticed) {
  const std::string drive = folder_.path() + "/d1";
  ASSERT_EQ(Run(Command({"--pack-to", drive})).exit_code, 0);
  const ProcessResult there = Run(Command());
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_NE(there.err.find("gave up their experts"), std::string::npos) << there.err;
  fs::remove_all(drive);
  const ProcessResult lost = Run(Command());
  EXPECT_NE(lost.exit_code, 0);
  EXPECT_NE(lost.err.find("expert set"), std::string::npos) << lost.err;
}

TEST_F(SetupCommand, ADriveThatIsNamedTwiceIsRefusedBeforeAnythingIsFetched) {
  const std::string drive = folder_.path() + "/d1";
  const ProcessResult result = Run(Command({"--pack-to", drive, "--pack-to", drive + "/"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("twice"), std::string::npos) << result.err;
  EXPECT_TRUE(server_.requests().empty());
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

TEST_F(SetupCommand, VerifyNamesAShardThatIsNotAsListedAndHowToRepairIt) {
  ASSERT_EQ(Run(Command()).exit_code, 0);
  const ProcessResult right = Run({"verify", "--model", to()});
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_NE(right.err.find("each with its listed checksum"), std::string::npos) << right.err;
  const std::string shard = to() + "/model-00004-of-000010.safetensors";
  FlipByte(shard, fs::file_size(shard) - 1000);
  const ProcessResult wrong = Run({"verify", "--model", to()});
  EXPECT_EQ(wrong.exit_code, 6) << wrong.err;
  EXPECT_NE(wrong.out.find(shard + ": expected sha256 "), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find(Cat("deltafin setup --repo ", HubServer::kRepo, " --to ", to())), std::string::npos)
      << wrong.out;
  EXPECT_NE(wrong.err.find("1 of 18 files"), std::string::npos) << wrong.err;
  fs::remove(to() + "/" + "deltafin-files.txt");
  const ProcessResult unlisted = Run({"verify", "--model", to()});
  EXPECT_EQ(unlisted.exit_code, 0) << unlisted.err;
  EXPECT_NE(unlisted.err.find("no checksums here"), std::string::npos) << unlisted.err;
  EXPECT_EQ(unlisted.err.find("good"), std::string::npos) << unlisted.err;
}

TEST_F(SetupCommand, CommandsSayThatADownloadIsUnfinishedInsteadOfNamingItsMissingShards) {
  ProcessOptions options;
  options.while_running = [&](int pid) {
    for (int i = 0; i < 10'000 && !fs::exists(to() + "/model-00001-of-000010.safetensors"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(pid, SIGKILL);
  };
  ASSERT_EQ(Run(Command({"--rate", "8MB/s"}), options).exit_code, 137);
  const std::string go_on = Cat("go on with `deltafin setup --repo ", HubServer::kRepo, " --to ", to(), "`");
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"run", "--prompt-ids", "1", "--ids", "--max-new", "1"}, {"inspect"}, {"verify"}}) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--model", to()});
    const ProcessResult result = Run(all);
    const std::string said = result.out + result.err;
    EXPECT_NE(said.find(go_on), std::string::npos) << arguments[0] << ": " << said;
    EXPECT_EQ(said.find(": missing"), std::string::npos) << arguments[0] << ": " << said;
  }
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
  const ProcessResult nothing = Run({"setup"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_NE(nothing.err.find("--from-cache"), std::string::npos) << nothing.err;
  EXPECT_EQ(Run({"setup", "--repo", "Kimi-K3", "--to", to()}).exit_code, 2);
  EXPECT_EQ(Run(Command({"--proxy", "gopher://x"})).exit_code, 2);
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
