// The commands pack and verify from outside: exit codes, streams, and a sudden end of the real program at any time.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "pack/pack_case.h"
#include "support/process.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;

class PackCommand : public testing::Test {
 protected:
  ProcessResult Run(std::vector<std::string> arguments, const std::vector<std::string>& folders = {},
                    ProcessOptions options = {}) {
    arguments.insert(arguments.begin() + 1, {"--model", c_.model(), "--no-state"});
    for (const std::string& folder : folders) arguments.insert(arguments.end(), {"--to", folder});
    options.arguments = std::move(arguments);
    return RunProcess(DELTAFIN_PROGRAM, options);
  }

  PackCase c_;
};

TEST_F(PackCommand, PacksAndVerifiesWithNothingButMessagesOnStderr) {
  const ProcessResult packed = Run({"pack"}, c_.drives(3));
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(packed.out, "");
  EXPECT_NE(packed.err.find("36 experts"), std::string::npos) << packed.err;
  EXPECT_EQ(c_.InSet(c_.drives(3)), c_.originals());
  const ProcessResult verified = Run({"verify"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.out, "");
  EXPECT_NE(verified.err.find("expert set: 36 experts"), std::string::npos) << verified.err;
}

TEST_F(PackCommand, VerifyNamesABadRecordOnALineAndRepairsIt) {
  ASSERT_EQ(Run({"pack"}, c_.drives(2)).exit_code, 0);
  const std::string path = c_.drive(1) + "/experts-g1-t3-1.bin";
  FlipByte(path, 6 * kPackPage + 17);
  const ProcessResult found = Run({"verify"});
  EXPECT_EQ(found.exit_code, 6);
  const std::string at = std::to_string(6 * kPackPage + 17);
  EXPECT_EQ(found.out, "layer 1, expert 1: " + path + ", bytes " + at + " to " + at + ": checksum differs\n");
  const ProcessResult repaired = Run({"verify", "--repair", "--quiet"});
  EXPECT_EQ(repaired.exit_code, 0);
  EXPECT_NE(repaired.out.find("repaired from the shards"), std::string::npos) << repaired.out;
  EXPECT_EQ(Run({"verify", "--quiet"}).out, "");
}

TEST_F(PackCommand, PackDenseReportsAndTheLogitsStayTheSame) {
  const ProcessResult packed = Run({"pack", "--dense"}, {c_.root() + "/dense"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(packed.out, "");
  for (const char* words : {"every bit kept", "of a million", "rows stay BF16", "--dense"})
    EXPECT_NE(packed.err.find(words), std::string::npos) << words << " in: " << packed.err;
  const auto logits = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"logits", "--prompt-ids", "1,2,3,4,5", "--out", c_.root() + "/" + name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadFileBytes(c_.root() + "/" + name);
  };
  const std::string expected = logits("a", {});
  EXPECT_EQ(logits("b", {"--dense", c_.root() + "/dense"}), expected);
  EXPECT_EQ(logits("c", {"--dense", c_.root() + "/dense", "--dense-mode", "stream"}), expected);
  FlipByte(c_.root() + "/dense/deltafin-dense-head.bin", 77);
  EXPECT_EQ(Run({"logits", "--prompt-ids", "1", "--out", c_.root() + "/d", "--dense", c_.root() + "/dense"}).exit_code,
            3);
}

TEST_F(PackCommand, RefusalsHaveTheirExitCodes) {
  EXPECT_EQ(Run({"pack"}).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--dense"}, c_.drives(2)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--dense", "--move"}, c_.drives(1)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--dense", "--replicas", "1GB"}, c_.drives(1)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--replicas", "5"}, c_.drives(2)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--rebalance", "--move"}, c_.drives(2)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--experts", c_.drive(1)}, c_.drives(2)).exit_code, 2);
  EXPECT_EQ(Run({"pack", "--replicas", "0GB"}, c_.drives(2)).exit_code, 2);
  EXPECT_EQ(Run({"pack"}, {c_.model() + "/config.json"}).exit_code, 2);
  EXPECT_EQ(Run({"pack"}, {c_.root() + "/not-mounted/k3"}).exit_code, 5);
  EXPECT_EQ(Run({"verify", "--experts", c_.drive(0)}).exit_code, 5);
  EXPECT_EQ(Run({"verify", "--repair"}).exit_code, 2);
  fs::remove(c_.model() + "/config.json");
  EXPECT_EQ(Run({"pack"}, c_.drives(1)).exit_code, 3);
}

TEST_F(PackCommand, AnotherModelIsBadDataForEveryCommand) {
  ASSERT_EQ(Run({"pack"}, c_.drives(2)).exit_code, 0);
  c_.MakeAnotherModel();
  EXPECT_EQ(Run({"pack"}, c_.drives(2)).exit_code, 3);
  EXPECT_EQ(Run({"pack", "--rebalance"}, c_.drives(3)).exit_code, 3);
  const ProcessResult run = Run({"run", "--prompt-ids", "1", "--ids", "--max-new", "1"});
  EXPECT_EQ(run.exit_code, 3) << run.err;
}

TEST_F(PackCommand, VerifySaysWhatItDidNotCheck) {
  ASSERT_EQ(Run({"pack", "--move", "--replicas", "100MB"}, c_.drives(3)).exit_code, 0);
  const ProcessResult shards = Run({"verify", "--shards"});
  EXPECT_EQ(shards.exit_code, 0);
  EXPECT_EQ(shards.err.find("all good"), std::string::npos) << shards.err;
  EXPECT_NE(shards.err.find("nothing was checked; 36 experts are not in the shards"), std::string::npos) << shards.err;
  fs::remove_all(c_.drive(1));
  const ProcessResult set = Run({"verify"});
  EXPECT_EQ(set.exit_code, 6) << set.err;
  EXPECT_EQ(set.out.rfind(c_.drive(1) + ": drive 1 ('drive1')", 0), 0u) << set.out;
  EXPECT_EQ(set.out.find(", bytes "), std::string::npos) << set.out;
  EXPECT_NE(set.err.find("0 of them cannot be read"), std::string::npos) << set.err;
  fs::remove_all(c_.drive(0));
  fs::remove_all(c_.drive(2));
  EXPECT_EQ(Run({"verify"}).exit_code, 5);
}

TEST_F(PackCommand, AFullDriveIs4AndAReadOnlyOneIs5) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to mount a small file system";
  const std::string small = c_.root() + "/small";
  fs::create_directories(small);
  if (std::system(("mount -t tmpfs -o size=256k tmpfs " + small).c_str()) != 0)
    GTEST_SKIP() << "a small file system cannot be mounted here";
  const ProcessResult full = Run({"pack"}, {small, c_.drive(1)});
  EXPECT_EQ(full.exit_code, 4) << full.err;
  EXPECT_NE(full.err.find("needed"), std::string::npos) << full.err;
  EXPECT_TRUE(fs::is_empty(small));
  EXPECT_EQ(std::system(("mount -o remount,ro " + small).c_str()), 0);
  const ProcessResult read_only = Run({"pack"}, {small, c_.drive(1)});
  EXPECT_EQ(read_only.exit_code, 5) << read_only.err;
  EXPECT_NE(read_only.err.find(small), std::string::npos) << read_only.err;
  EXPECT_EQ(std::system(("umount " + small).c_str()), 0);
}

TEST_F(PackCommand, KilledAtAnyTimeItGoesOn) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  ASSERT_EQ(Run({"pack", "--move", "--quiet"}, c_.drives(3)).exit_code, 0);
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  const FileContents expected = c_.Files();
  std::mt19937_64 random(21);
  for (int i = 0; i < 5; ++i) {
    c_.Reset();
    const auto delay = std::chrono::microseconds(std::uniform_int_distribution<int64_t>(0, length)(random));
    ProcessOptions options;
    // A timer outlives exec, and the program does not handle its signal: it ends as from SIGKILL.
    options.in_child = [delay] {
      itimerval timer{};
      timer.it_value = {delay.count() / 1'000'000, std::max<int64_t>(1, delay.count() % 1'000'000)};
      setitimer(ITIMER_REAL, &timer, nullptr);
    };
    (void)Run({"pack", "--move", "--quiet"}, c_.drives(3), options);
    const ProcessResult resumed = Run({"pack", "--move", "--quiet"}, c_.drives(3));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(Difference(expected, c_.Files()), "") << "killed after " << delay.count() << " us";
  }
}

}  // namespace
}  // namespace deltafin::test
