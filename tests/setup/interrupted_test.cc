// Killed at any point, setup loses nothing that counts: the same call ends with the same bytes, and meanwhile no file
// has its final name with other contents than the repository's.
//
// A child process runs it and kills itself with SIGKILL before its n-th change on a drive, n drawn at random, or is
// killed after a random time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "base/platform.h"
#include "checkpoint/shard_file.h"
#include "pack/pack_case.h"
#include "setup/setup_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

constexpr int kKills = kIsSanitized ? std::min(3, DELTAFIN_SETUP_KILLS) : DELTAFIN_SETUP_KILLS;

using Work = std::function<Result<SetupReport>(const DiskHook& hook)>;

// True when it was killed before change number `step`.
bool RunAndKill(const Work& work, int step) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::atomic<int> changes{0};
    const Result<SetupReport> report = work([&](DiskStep, const std::string&) -> Status {
      if (++changes == step) kill(getpid(), SIGKILL);
      return {};
    });
    _exit(report ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

// The same at any time, not only before a change.
bool RunAndKillAfter(const Work& work, std::chrono::microseconds time) {
  const pid_t pid = fork();
  if (pid == 0) _exit(work({}) ? 0 : 1);
  std::this_thread::sleep_for(time);
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

class SetupInterrupted : public testing::Test {
 protected:
  // `files` tells what is compared at the end; `check` looks at every state in between.
  void KillOften(uint64_t seed, const Work& work, const std::function<void()>& clear,
                 const std::function<std::map<std::string, std::string>()>& files, const std::function<void()>& check) {
    clear();
    std::atomic<int> changes{0};
    const auto begin = std::chrono::steady_clock::now();
    const Result<SetupReport> undisturbed = work([&](DiskStep, const std::string&) -> Status {
      ++changes;
      return {};
    });
    const auto whole =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_TRUE(undisturbed) << undisturbed.error().message();
    const std::map<std::string, std::string> expected = files();
    std::mt19937_64 random(seed);
    int killed = 0;
    for (int i = 0; i < kKills; ++i) {
      const int step = std::uniform_int_distribution<int>(1, changes.load())(random);
      SCOPED_TRACE("killed before change " + std::to_string(step) + " of about " + std::to_string(changes.load()));
      clear();
      const std::chrono::microseconds time(std::uniform_int_distribution<int64_t>(0, whole)(random));
      killed += (i % 2 == 0 ? RunAndKill(work, step) : RunAndKillAfter(work, time)) ? 1 : 0;
      check();
      if (i % 3 == 0) {
        RunAndKill(work, std::max(1, step / 2));
        check();
      }
      const Result<SetupReport> resumed = work({});
      ASSERT_TRUE(resumed) << resumed.error().message();
      ASSERT_EQ(FirstDifference(expected, files()), "");
    }
    // How many changes there are depends on how the network cuts the bytes.
    EXPECT_GT(killed, kKills / 2);
  }
};

TEST_F(SetupInterrupted, ADownloadEndsByteEqual) {
  HubServer server(SmallRepository());
  TempFolder folder;
  const std::string to = folder.path() + "/model";
  KillOften(
      21,
      [&](const DiskHook& hook) {
        HubAccess access(server, 5);
        SetupOptions options = OptionsFor(to);
        options.hook = hook;
        return FetchModel(*access.source, options, {}, {});
      },
      [&] { fs::remove_all(to); }, [&] { return FilesIn(to); },
      [&] {
        if (fs::exists(to)) {
          EXPECT_EQ(WrongFile(server.files(), FilesIn(to)), "");
        }
      });
}

// "", or a file that is neither the repository's nor a shard of it that says where its experts went.
std::string WrongOrNotEmptied(const std::map<std::string, std::string>& expected, const std::string& folder) {
  if (!fs::exists(folder)) return "";
  for (const auto& [name, contents] : FilesIn(folder)) {
    if (name.ends_with(".part") || name.find(".part-") != std::string::npos || name.starts_with("deltafin-")) continue;
    if (!expected.contains(name)) return name + " is too much";
    if (expected.at(name) == contents) continue;
    const auto shard = ReadShardHeader(folder + "/" + name);
    if (!shard || shard->header.metadata(kExpertsMovedTo).empty()) return name + " differs";
    if (shard->header.file_bytes() != contents.size()) return name + " is not whole";
  }
  return "";
}

TEST_F(SetupInterrupted, ADownloadIntoAPackedSetEndsByteEqual) {
  PackCase c;
  HubServer server(HubServer::FilesOf(c.model()));
  const std::string to = c.root() + "/fetched";
  const auto files = [&] {
    std::map<std::string, std::string> all = FilesIn(to);
    for (const std::string& drive : c.drives(2))
      for (auto& [name, contents] : HubServer::FilesOf(drive)) all[drive + "/" + name] = contents;
    return all;
  };
  KillOften(
      22,
      [&](const DiskHook& hook) {
        HubAccess access(server, 5);
        SetupOptions options = OptionsFor(to);
        options.any_model = false;
        options.range_bytes = 512 * 1024;
        options.pack = c.Options(c.drives(2), {3e9, 2e9});
        options.pack.replica_bytes = 8 * 12 * kPackPage;
        options.hook = hook;
        return FetchModel(*access.source, options, {}, {});
      },
      [&] {
        fs::remove_all(to);
        for (const std::string& drive : c.drives(2)) fs::remove_all(drive);
      },
      files, [&] { EXPECT_EQ(WrongOrNotEmptied(server.files(), to), ""); });
  EXPECT_EQ(c.InSet(c.drives(2)), c.originals());
}

}  // namespace
}  // namespace deltafin::test
