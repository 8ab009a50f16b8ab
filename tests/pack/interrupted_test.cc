// Killed at any point, pack loses nothing, and the same command ends with the same bytes as if nothing had happened.
//
// A child process runs the work and kills itself with SIGKILL before its n-th change on a drive, n drawn at random.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>

#include "base/platform.h"
#include "pack/journal.h"
#include "pack/pack.h"
#include "pack/pack_case.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

// How many kills each case gets; the long program has the full number. Under sanitizers, which take ten times as long,
// a few do: what they look for does not depend on where the work ended.
constexpr int kKills = kIsSanitized ? std::min(3, DELTAFIN_PACK_KILLS) : DELTAFIN_PACK_KILLS;

using Work = std::function<Result<PackReport>(const DiskHook& hook)>;

// Runs `work` in a child that kills itself before change number `step` (counted from 1). True when it was killed.
bool RunAndKill(const Work& work, int step) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::atomic<int> changes{0};
    const Result<PackReport> report = work([&](DiskStep, const std::string&) -> Status {
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

class Interrupted : public testing::Test {
 protected:
  // `prepare` makes the state that `work` starts from; `check` says that nothing is lost at any moment.
  void KillOften(uint64_t seed, const std::function<void()>& prepare, const Work& work,
                 const std::function<void()>& check) {
    prepare();
    std::atomic<int> changes{0};
    const Result<PackReport> undisturbed = work([&](DiskStep, const std::string&) -> Status {
      ++changes;
      return {};
    });
    ASSERT_TRUE(undisturbed) << undisturbed.error().message();
    const FileContents expected = c_.Files();
    std::mt19937_64 random(seed);
    for (int i = 0; i < kKills; ++i) {
      const int step = std::uniform_int_distribution<int>(1, changes.load())(random);
      SCOPED_TRACE("killed before change " + std::to_string(step) + " of about " + std::to_string(changes.load()));
      prepare();
      RunAndKill(work, step);
      check();
      // A second kill while it resumes, now and then.
      if (i % 3 == 0) {
        RunAndKill(work, std::max(1, step / 2));
        check();
      }
      const Result<PackReport> resumed = work({});
      ASSERT_TRUE(resumed) << resumed.error().message();
      check();
      ASSERT_EQ(Difference(expected, c_.Files()), "");
    }
  }

  // Every expert is whole in the shards, or in a set that can be opened, or in an unfinished one.
  void NothingIsLost(const std::vector<std::vector<std::string>>& places) {
    ExpertBytes found = c_.InShards();
    for (const auto& [key, bytes] : found) ASSERT_EQ(bytes, c_.originals().at(key));
    for (const std::vector<std::string>& folders : places) {
      if (found.size() == kPackRecords) break;
      if (fs::exists(folders[0] + "/deltafin-pack.journal"))
        for (auto& [key, bytes] : c_.InJournal(folders[0])) {
          ASSERT_EQ(bytes, c_.originals().at(key));
          found[key] = bytes;
        }
      if (found.size() == kPackRecords) break;
      for (auto& [key, bytes] : c_.InSet(folders)) {
        ASSERT_EQ(bytes, c_.originals().at(key));
        found[key] = bytes;
      }
    }
    ASSERT_EQ(found.size(), static_cast<size_t>(kPackRecords));
  }

  PackCase c_;
};

TEST_F(Interrupted, PackLosesNothingAndEndsByteEqual) {
  c_.SpoilScales({1, 3}, 0);
  PackOptions options = c_.Options(c_.drives(3), {3e9, 2e9, 1e9});
  options.compact = true;
  options.replica_bytes = 8 * 12 * kPackPage;
  KillOften(
      11, [&] { c_.Reset(); },
      [&](const DiskHook& hook) {
        PackOptions with = options;
        with.hook = hook;
        return Pack(with, {}, {});
      },
      [&] { ASSERT_EQ(c_.InShards(), c_.originals()); });
}

TEST_F(Interrupted, PackWithMoveLosesNothingAndEndsByteEqual) {
  const PackOptions options = [&] {
    PackOptions o = c_.Options(c_.drives(2), {3e9, 2e9});
    o.move = true;
    return o;
  }();
  KillOften(
      12, [&] { c_.Reset(); },
      [&](const DiskHook& hook) {
        PackOptions with = options;
        with.hook = hook;
        return Pack(with, {}, {});
      },
      [&] { NothingIsLost({c_.drives(2)}); });
}

TEST_F(Interrupted, AnExtensionLeavesTheOldSetUsableAndEndsByteEqual) {
  const PackOptions options = c_.Options(c_.drives(2), {3e9, 2e9});
  const auto prepare = [&] {
    c_.Reset();
    fs::rename(c_.shard(3), c_.root() + "/late");
    ASSERT_TRUE(Pack(options, {}, {}));
    fs::rename(c_.root() + "/late", c_.shard(3));
  };
  KillOften(
      13, prepare,
      [&](const DiskHook& hook) {
        PackOptions with = options;
        with.hook = hook;
        return Pack(with, {}, {});
      },
      [&] {
        const ExpertBytes set = c_.InSet(c_.drives(2));
        ASSERT_GE(set.size(), 2u * kPackExperts);
        for (const auto& [key, bytes] : set) ASSERT_EQ(bytes, c_.originals().at(key));
      });
}

// From drives 0 and 1 with second copies to drives 1, 2 and 3; the shards have nothing.
TEST_F(Interrupted, RebalanceLosesNothingAndEndsByteEqual) {
  PackOptions before = c_.Options(c_.drives(2), {3e9, 2e9});
  before.move = true;
  before.replica_bytes = 10 * 12 * kPackPage;
  const std::vector<std::string> to = {c_.drive(2), c_.drive(1), c_.drive(3)};
  const PackOptions options = c_.Options(to, {2e9, 1e9, 2e9});
  KillOften(
      14,
      [&] {
        c_.Reset();
        ASSERT_TRUE(Pack(before, {}, {}));
      },
      [&](const DiskHook& hook) {
        PackOptions with = options;
        with.hook = hook;
        return Rebalance(with, c_.drives(2), {}, {});
      },
      [&] {
        const bool old = fs::exists(c_.drive(0) + "/deltafin-experts-g1.json") &&
                         fs::exists(c_.drive(1) + "/deltafin-experts-g1.json");
        ASSERT_EQ(c_.InSet(old ? c_.drives(2) : to), c_.originals());
      });
}

}  // namespace
}  // namespace deltafin::test
