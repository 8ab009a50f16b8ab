// The file that says which folders hold the experts of a model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/expert_set.h"
#include "checkpoint/micro_copy.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class Pointer : public ::testing::Test {
 protected:
  std::string State() const { return parent_.path() + "/state"; }
  std::string Model() const { return parent_.path() + "/model"; }
  void SetUp() override { fs::create_directories(Model()); }

  test::TempFolder parent_;
  const ExpertSetPointer pointer_{0x5e7, {"/mnt/a/experts", "/mnt/b \"x\"/experts"}};
};

TEST_F(Pointer, IsFoundInTheModelFolder) {
  EXPECT_EQ(FindExpertFolders(Model(), State())->size(), 0u);
  const Result<std::string> path = WriteExpertPointer(Model(), State(), pointer_);
  ASSERT_TRUE(path) << path.error().message();
  EXPECT_EQ(*path, Model() + "/deltafin-experts.json");
  EXPECT_EQ(*FindExpertFolders(Model(), State()), pointer_.folders);
  EXPECT_EQ(*FindExpertFolders(Model(), ""), pointer_.folders);
  EXPECT_FALSE(fs::exists(State()));
}

TEST_F(Pointer, IsFoundInTheStateFolderWhenTheModelFolderCannotBeWritten) {
  if (geteuid() == 0) {
    // Root may write anywhere: a folder that does not exist stands for one that cannot be written.
    fs::remove(Model());
  } else {
    fs::permissions(Model(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  const Result<std::string> path = WriteExpertPointer(Model(), State(), pointer_);
  ASSERT_TRUE(path) << path.error().message();
  EXPECT_EQ(path->rfind(State() + "/experts-", 0), 0u);
  EXPECT_EQ(*FindExpertFolders(Model(), State()), pointer_.folders);
  EXPECT_EQ(FindExpertFolders(Model() + "2", State())->size(), 0u) << "another model's";
  EXPECT_FALSE(WriteExpertPointer(Model(), "", pointer_));
}

TEST_F(Pointer, AnUnreadableOneIsCorrupt) {
  ASSERT_TRUE(WriteExpertPointer(Model(), State(), pointer_));
  const std::string path = Model() + "/deltafin-experts.json";
  const std::string good = test::ReadBytes(path);
  for (const std::string& bad : std::vector<std::string>{"", "{", "[]", "{}", good.substr(0, good.size() / 2)}) {
    test::WriteBytes(path, bad);
    const auto found = FindExpertFolders(Model(), State());
    ASSERT_FALSE(found) << bad;
    EXPECT_EQ(found.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(found.error().message(), HasSubstr(path));
  }
  std::string relative = good;
  relative.replace(relative.find("/mnt/a"), 1, "");
  test::WriteBytes(path, relative);
  EXPECT_THAT(FindExpertFolders(Model(), State()).error().message(), HasSubstr("absolute"));
  fs::remove(path);
  fs::create_directories(path);
  EXPECT_EQ(FindExpertFolders(Model(), State()).error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltafin
