// `deltafin drives` from outside: what it writes, keeps, refuses and leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/drive_choice.h"
#include "base/json.h"
#include "base/units.h"
#include "io/drive_profile.h"
#include "support/process.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DrivesCommand : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(root_); }

  test::ProcessResult Drives(std::vector<std::string> arguments, test::ProcessOptions options = {}) {
    options.arguments = std::move(arguments);
    options.arguments.insert(options.arguments.begin(), "drives");
    return test::RunProcess(DELTAFIN_PROGRAM, options);
  }
  std::string LargeFile(const std::string& name, uint64_t bytes) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "x";
    fs::resize_file(path, bytes);
    return path;
  }

  const std::string root_ = testing::TempDir() + "/drives_command_" + std::to_string(getpid());
  const std::string folder_ = root_ + "/drive", state_ = root_ + "/state";
};

TEST_F(DrivesCommand, MeasuresAFolderKeepsAProfileAndLeavesNothingElse) {
  const auto r = Drives({folder_, "--json", "--seconds", "1", "--size", "150MB", "--state-dir", state_});
  if (r.exit_code == 4) GTEST_SKIP() << r.out << r.err;
  ASSERT_EQ(r.exit_code, 0) << r.out << r.err;
  const Json json = Json::parse(r.out);
  ASSERT_EQ(json["drives"].size(), 1u) << r.out;
  const Json& drive = json["drives"][0];
  EXPECT_EQ(drive["folder"], folder_);
  EXPECT_GT(drive["bytes_per_second"].get<double>(), 0);
  EXPECT_GE(drive["grid"].size(), 2u);
  EXPECT_TRUE(drive["own_test_file"].get<bool>());
  EXPECT_TRUE(fs::is_empty(folder_));
  const auto profile = LoadDriveProfile(state_, drive["identity"].get<std::string>());
  ASSERT_TRUE(profile);
  EXPECT_DOUBLE_EQ(profile->bytes_per_second, drive["bytes_per_second"].get<double>());
  EXPECT_EQ(ProfiledRates(state_, {folder_})[0], profile->bytes_per_second);
}

TEST_F(DrivesCommand, PrintsATableOnStdout) {
  const auto r = Drives({folder_, "--seconds", "1", "--size", "150MB", "--no-state"});
  if (r.exit_code == 4) GTEST_SKIP() << r.out << r.err;
  ASSERT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, testing::StartsWith("drive "));
  EXPECT_THAT(r.out, HasSubstr(folder_));
  EXPECT_FALSE(fs::exists(state_));
}

TEST_F(DrivesCommand, CtrlCEndsItWith130AndLeavesNoTestFile) {
  test::ProcessOptions options;
  options.while_running = [](int pid) { kill(pid, SIGINT); };
  const auto r = Drives({folder_, "--size", "2GB", "--no-state"}, options);
  if (r.exit_code == 4) GTEST_SKIP() << r.out << r.err;
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DrivesCommand, RefusesWhatMakesNoSense) {
  EXPECT_EQ(Drives({root_ + "/missing"}).exit_code, 3);
  EXPECT_EQ(Drives({folder_, "--size", "5"}).exit_code, 2);
  EXPECT_EQ(Drives({folder_, "--size", "1MB"}).exit_code, 2);
  EXPECT_EQ(Drives({folder_, "--seconds", "0"}).exit_code, 2);
  EXPECT_EQ(Drives({folder_, "--io", "magic"}).exit_code, 2);
  EXPECT_EQ(Drives({folder_, "--no-state", "--state-dir", state_}).exit_code, 2);
}

TEST_F(DrivesCommand, AFolderThatIsNoneIsNamedWithWhatWasExpectedAndFound) {
  std::ofstream(root_ + "/file") << "x";
  for (const char* option : {"--folder", "--model", "--experts"}) {
    const auto missing = Drives({option, root_ + "/missing", "--no-state"});
    EXPECT_EQ(missing.exit_code, 3);
    EXPECT_THAT(missing.err, HasSubstr(root_ + "/missing: expected a folder, got nothing of that name")) << option;
    const auto file = Drives({option, root_ + "/file", "--no-state"});
    EXPECT_EQ(file.exit_code, 3);
    EXPECT_THAT(file.err, HasSubstr(root_ + "/file: expected a folder, got something else")) << option;
  }
}

TEST_F(DrivesCommand, ADriveWithoutSpaceIsNamedWithTheReason) {
  const auto r = Drives({folder_, "--size", "1000000TB", "--no-state"});
  EXPECT_EQ(r.exit_code, 4) << r.err;
  EXPECT_THAT(r.out, HasSubstr("not measured: "));
  EXPECT_THAT(r.out, HasSubstr("no space for a test file"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DrivesCommand, OfAModelReadsItsLargeFilesAndWritesNone) {
  LargeFile("a.safetensors", 200 * kMiB);
  LargeFile("b.safetensors", 200 * kMiB);
  LargeFile("small.json", 1000);
  const Result<DriveChoice> choice = ChooseDrives({{}, {folder_}, {}});
  ASSERT_TRUE(choice) << choice.error().message();
  ASSERT_EQ(choice->targets.size(), 1u);
  EXPECT_THAT(choice->targets[0].files,
              testing::ElementsAre(testing::EndsWith("/a.safetensors"), testing::EndsWith("/b.safetensors")));
}

TEST_F(DrivesCommand, OfAModelWithTooLittleToReadIsSkippedWithTheReason) {
  LargeFile("a.safetensors", 40 * kMiB);
  const Result<DriveChoice> few = ChooseDrives({{}, {folder_}, {}});
  ASSERT_TRUE(few);
  EXPECT_TRUE(few->targets.empty());
  ASSERT_EQ(few->skipped.size(), 1u);
  EXPECT_THAT(few->skipped[0].reason, HasSubstr("name a folder on this drive"));
  const auto r = Drives({"--model", folder_, "--no-state"});
  EXPECT_EQ(r.exit_code, 4);
  EXPECT_THAT(r.err, HasSubstr(folder_ + ": holds only 41.9 MB of large files, at least 268 MB are needed"));
  EXPECT_THAT(r.err, HasSubstr("deltafin drives FOLDER"));
  EXPECT_EQ(r.out, "");
}

TEST_F(DrivesCommand, TwoFoldersOfOneDriveAreMeasuredOnce) {
  const Result<DriveChoice> choice = ChooseDrives({{folder_, root_}, {}, {}});
  ASSERT_TRUE(choice);
  ASSERT_EQ(choice->targets.size(), 1u);
  ASSERT_EQ(choice->skipped.size(), 1u);
  EXPECT_EQ(choice->skipped[0].reason, "on the same drive as " + folder_);
}

TEST_F(DrivesCommand, ANamedFolderUsesTheModelsFilesOnItsDriveInsteadOfWriting) {
  LargeFile("a.safetensors", 300 * kMiB);
  const Result<DriveChoice> choice = ChooseDrives({{root_}, {folder_}, {}});
  ASSERT_TRUE(choice);
  ASSERT_EQ(choice->targets.size(), 1u);
  EXPECT_EQ(choice->targets[0].folder, root_);
  EXPECT_EQ(choice->targets[0].files.size(), 1u);
}

}  // namespace
}  // namespace deltafin
