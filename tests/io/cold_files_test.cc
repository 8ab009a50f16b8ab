// Files are forgotten by the system, each once, and unharmed.
#include "io/cold_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/test_data.h"

namespace deltafin {
namespace {

TEST(ForgetFiles, ForgetsEveryFileOfAFolderOnceAndLeavesItAsItWas) {
  const test::TempFolder folder;
  const std::string bytes(1 << 20, 'x');
  for (const char* name : {"/a", "/b"}) {
    std::ofstream(folder.path() + name) << bytes;
    const int fd = open((folder.path() + name).c_str(), O_RDONLY);
    ASSERT_EQ(fsync(fd), 0);  // pages that are not on the drive yet cannot be forgotten
    close(fd);
  }
  std::filesystem::create_symlink(folder.path() + "/a", folder.path() + "/again");
  std::filesystem::create_directory(folder.path() + "/inside");
  const auto forgotten = ForgetFiles({folder.path(), folder.path()});
  ASSERT_TRUE(forgotten) << forgotten.error().message();
  EXPECT_EQ(forgotten->files, 2u);
  EXPECT_EQ(forgotten->bytes, 2 * bytes.size());
  EXPECT_LE(forgotten->still_cached, forgotten->bytes);
  std::string back;
  std::getline(std::ifstream(folder.path() + "/a"), back);
  EXPECT_EQ(back, bytes);
}

TEST(ForgetFiles, NamesAFolderThatIsNotThere) {
  const auto forgotten = ForgetFiles({"/nowhere/at/all"});
  ASSERT_FALSE(forgotten);
  EXPECT_EQ(forgotten.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(forgotten.error().message().find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace deltafin
