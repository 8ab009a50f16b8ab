// `run` on drives that misbehave or may not be written: the same tokens or an error with its exit code, a process that
// ends, and nothing on the drives changed. Linux only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "base/platform.h"
#include "support/engine_runs.h"
#include "support/expert_set_builder.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Exit code of a child that could not be prepared.
constexpr int kCannotPrepare = 77;

// A model and its experts on two drives, all of it ours.
class DriveFaults : public testing::Test {
 protected:
  void Prepare(const std::string& model, double replicas, int drives = 2) {
    fs::copy(model, this->model(), fs::copy_options::recursive);
    drives_ = test::DriveFolders(root_.path(), drives);
    test::BuildExpertSet(this->model(), drives_, {.replicas = replicas});
    for (const auto& entry : fs::recursive_directory_iterator(root_.path()))
      fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0755) : fs::perms(0644));
    fs::permissions(root_.path(), fs::perms(0755));
    const test::ProcessResult undisturbed = Run();
    ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
    expected_ = undisturbed.out;
    expected_err_ = undisturbed.err;
    before_ = Contents();
  }
  std::string model() const { return root_.path() + "/model"; }

  // Ids of an answer, with a cache so small that every step reads.
  test::ProcessResult Run(const std::string& flaky = "", test::ProcessOptions options = {},
                          std::vector<std::string> more = {"--prompt-ids", "17,65,161", "--ids", "--no-state"}) {
    options.arguments = {"run",     "--model",   model(), "--io",           "pread",
                         "--quiet", "--max-new", "8",     "--expert-cache", cache_};
    for (const std::string& drive : drives_) options.arguments.insert(options.arguments.end(), {"--experts", drive});
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    if (!flaky.empty()) {
      options.environment.push_back(std::string("LD_PRELOAD=") + DELTAFIN_FLAKY_PREAD);
      options.environment.push_back("FLAKY_PREAD=" + flaky);
    }
    return test::RunProcess(DELTAFIN_PROGRAM, options);
  }

  // Every file and folder with its times and bytes.
  std::map<std::string, std::string> Contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(root_.path())) {
      std::ostringstream text;
      text << entry.last_write_time().time_since_epoch().count() << ' '
           << static_cast<int>(entry.status().permissions()) << ' ';
      if (entry.is_regular_file()) text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      all[entry.path().string()] = std::move(text).str();
    }
    return all;
  }
  void ExpectUntouched() const {
    const std::map<std::string, std::string> after = Contents();
    EXPECT_EQ(after.size(), before_.size());
    for (const auto& [path, contents] : before_) {
      const auto it = after.find(path);
      EXPECT_TRUE(it != after.end() && it->second == contents) << path << " was changed";
    }
  }

  const test::TempFolder root_;
  std::vector<std::string> drives_;
  std::string cache_ = "70KB";
  std::string expected_, expected_err_;
  std::map<std::string, std::string> before_;
};

// Reads go wrong through a preloaded library, which sanitizers do not let in.
class FlakyReads : public DriveFaults {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "sanitizers come before preloaded libraries";
  }
};

TEST_F(FlakyReads, BusyInterruptedAndShortOnesGiveTheSameTokens) {
  Prepare(test::MicroFolder(), 0);
  for (const char* kind : {"again", "short"}) {
    const auto r = Run(kind);
    EXPECT_EQ(r.exit_code, 0) << kind << ": " << r.err;
    EXPECT_EQ(r.out, expected_) << kind;
    EXPECT_EQ(r.err, expected_err_) << kind << ": they pass without a word";
  }
  ExpectUntouched();
}

TEST_F(FlakyReads, OfADriveThatFailsEndTheRunWith5NamingEverythingAndChangeNothing) {
  Prepare(test::MicroFolder(), 0);
  const auto r = Run("fail:" + drives_[0] + ":10");
  EXPECT_EQ(r.exit_code, 5);
  EXPECT_THAT(r.err, HasSubstr(drives_[0]));
  EXPECT_THAT(r.err, HasSubstr(".bin"));
  EXPECT_THAT(r.err, testing::ContainsRegex("bytes [0-9]+ to [0-9]+"));
  EXPECT_THAT(r.err, testing::ContainsRegex("layer [0-9]+, expert [0-9]+"));
  ExpectUntouched();
}

TEST_F(FlakyReads, OfADriveThatFailsOrHangsAreMendedByCopiesWithOneWarningAndChangeNothing) {
  Prepare(test::MicroFolder(), 1);
  for (const char* kind : {"fail", "hang"}) {
    const auto r = Run(std::string(kind) + ":" + drives_[0] + ":5");
    EXPECT_EQ(r.exit_code, 0) << kind << ": " << r.err;
    EXPECT_EQ(r.out, expected_) << kind;
    EXPECT_THAT(r.err, HasSubstr("degraded")) << kind;
    EXPECT_EQ(r.err.find("degraded"), r.err.rfind("degraded")) << kind << ": " << r.err;
    ExpectUntouched();
  }
}

TEST_F(FlakyReads, ThatHangWhileLoadingAreLeftByOneCtrlC) {
  Prepare(test::MicroFolder(), 0);
  test::ProcessOptions options;
  // The plan comes right before the load.
  options.while_running = [](int pid) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(pid, SIGINT);
  };
  options.arguments = {"run", "--model", model(), "--io", "pread", "--no-state", "--prompt-ids", "1", "--ids"};
  options.environment = {std::string("LD_PRELOAD=") + DELTAFIN_FLAKY_PREAD, "FLAKY_PREAD=hang:.safetensors"};
  const auto r = test::RunProcess(DELTAFIN_PROGRAM, options, 60);
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_EQ(r.out, "");
  ExpectUntouched();
}

TEST_F(FlakyReads, InTheMiddleOfAnAnswerLeaveNoHalfLine) {
  cache_ = "700KB";
  Prepare(test::NanoFolder(), 0, 1);
  int well = 300;
  for (const char* form : {"text", "--ids", "--json"}) {
    std::vector<std::string> more = {"--prompt", "Once upon a time", "--no-state"};
    if (form[0] == '-') more.emplace_back(form);
    test::ProcessResult r;
    // Not before the first token, not after the last one.
    for (;;) {
      r = Run("fail:" + drives_[0] + ":" + std::to_string(well), {}, more);
      ASSERT_NE(r.exit_code, 0) << "no run failed after its first token";
      if (r.exit_code == 5 && !r.out.empty()) break;
      well += well / 6;
    }
    ASSERT_EQ(r.exit_code, 5) << r.err;
    EXPECT_EQ(r.out.back(), '\n') << form << ": " << r.out;
    EXPECT_NE(r.out, "\n") << form;
    EXPECT_THAT(r.err, testing::ContainsRegex("(^|\n)deltafin run: ")) << form;
  }
}

TEST_F(DriveFaults, FoldersThatMayNotBeWrittenAreReadAllTheSame) {
  Prepare(test::MicroFolder(), 0);
  for (const auto& entry : fs::recursive_directory_iterator(root_.path()))
    fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0555) : fs::perms(0444));
  before_ = Contents();
  test::ProcessOptions options;
  // Root may write everywhere.
  options.in_child = [] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0 || access(DELTAFIN_PROGRAM, X_OK) != 0))
      _exit(kCannotPrepare);
  };
  const auto r = Run("", options);
  EXPECT_TRUE(r.exit_code == 0 || r.exit_code == kCannotPrepare) << r.exit_code << r.err;
  if (r.exit_code == 0) {
    EXPECT_EQ(r.out, expected_);
    // Nor is a state folder needed.
    const auto without_state = Run("", options, {"--prompt-ids", "17,65,161", "--ids", "--state-dir", model() + "/s"});
    EXPECT_EQ(without_state.exit_code, 0) << without_state.err;
    EXPECT_EQ(without_state.out, expected_);
  }
  ExpectUntouched();
  for (const auto& entry : fs::recursive_directory_iterator(root_.path()))
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms(0755));
  if (r.exit_code == kCannotPrepare) GTEST_SKIP() << "the program cannot be run as another user here";
}

TEST_F(DriveFaults, DrivesThatAreMountedReadOnlyAreReadAllTheSame) {
  Prepare(test::MicroFolder(), 0);
  test::ProcessOptions options;
  options.in_child = [path = root_.path()] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0 ||
        access(path.c_str(), W_OK) == 0)
      _exit(kCannotPrepare);
  };
  const auto r = Run("", options);
  if (r.exit_code == kCannotPrepare) GTEST_SKIP() << "needs root to mount a folder read-only";
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, expected_);
}

TEST_F(DriveFaults, AFolderThatIsNotThereIs5AndASetOfAnotherModelIs3) {
  Prepare(test::MicroFolder(), 0);
  fs::rename(drives_[1], drives_[1] + "-away");
  const auto missing = Run();
  EXPECT_EQ(missing.exit_code, 5) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr(drives_[1]));
  EXPECT_EQ(missing.out, "");
  const test::TempFolder other;
  drives_ = test::DriveFolders(other.path(), 1);
  test::BuildExpertSet(test::NanoFolder(), drives_);
  const auto foreign = Run();
  EXPECT_EQ(foreign.exit_code, 3) << foreign.err;
  EXPECT_THAT(foreign.err, HasSubstr("another model"));
}

}  // namespace
}  // namespace deltafin
