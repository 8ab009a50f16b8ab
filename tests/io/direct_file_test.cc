#include "io/direct_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "io/pread_engine.h"
#include "io/test_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

TEST(DirectFile, TellsSizeAlignmentAndPath) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/a.bin";
  test::WriteTestFile(path, 12'345);
  const Result<DirectFile> file = DirectFile::Open(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->size(), 12'345u);
  EXPECT_EQ(file->path(), path);
  EXPECT_TRUE(std::has_single_bit(file->alignment()));
  EXPECT_LE(file->alignment(), 65536u);
  EXPECT_GE(file->fd(), 0);
}

TEST(DirectFile, AnEmptyFileOpens) {
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/empty", 0);
  const Result<DirectFile> file = DirectFile::Open(folder.path() + "/empty");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 0u);
}

TEST(DirectFile, AMissingFileIsNotFoundAndNamed) {
  const Result<DirectFile> file = DirectFile::Open("/nowhere/model-00001.safetensors");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(file.error().message(), HasSubstr("/nowhere/model-00001.safetensors: No such file"));
}

TEST(DirectFile, AFolderIsRefused) {
  const test::TempFolder folder;
  const Result<DirectFile> file = DirectFile::Open(folder.path());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(file.error().message(), HasSubstr("folder"));
}

TEST(DirectFile, APipeIsRefusedWithoutWaitingForAWriter) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const Result<DirectFile> file = DirectFile::Open(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kCorrupt);
}

TEST(DirectFile, AnUnreadableFileIsRefusedWithTheReason) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/secret", 10);
  ASSERT_EQ(chmod((folder.path() + "/secret").c_str(), 0), 0);
  const Result<DirectFile> file = DirectFile::Open(folder.path() + "/secret");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::kIo);
  EXPECT_THAT(file.error().message(), HasSubstr("Permission denied"));
}

TEST(DirectFile, MovesKeepOneDescriptorOpen) {
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/a", 10);
  DirectFile first = std::move(*DirectFile::Open(folder.path() + "/a"));
  const int fd = first.fd();
  DirectFile second = std::move(first);
  EXPECT_EQ(second.fd(), fd);
  EXPECT_EQ(first.fd(), -1);  // NOLINT: the state after a move is part of the contract
  second = DirectFile();
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

// Pages of [offset, offset + bytes) of the file that the page cache holds.
int64_t CachedPages(const std::string& path, uint64_t offset, uint64_t bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  std::vector<unsigned char> resident(bytes / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(mincore(map, bytes, resident.data()), 0);
  munmap(map, bytes);
  close(fd);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; });
}

TEST(DirectFile, ReadsLeaveNothingInThePageCache) {
  constexpr uint64_t kBytes = 4 << 20;
  const test::TempFolder folder;
  const std::string path = folder.path() + "/a.bin";
  test::WriteTestFile(path, kBytes);
  const Result<DirectFile> file = DirectFile::Open(path);
  ASSERT_TRUE(file);
  if (file->buffered()) GTEST_SKIP() << "the file system of " << path << " has no direct reads";
  ASSERT_EQ(posix_fadvise(file->fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (CachedPages(path, 0, kBytes) != 0) GTEST_SKIP() << "the page cache keeps the file that was just written";

  const AlignedBuffer buffer = test::MakeBuffer(kBytes);
  const std::unique_ptr<IoEngine> engine = CreatePreadEngine(1);
  engine->Submit(1, {&*file, 0, kBytes, buffer.data()});
  IoCompletion done[1];
  while (engine->Wait(done, -1) == 0) {
  }
  ASSERT_TRUE(done[0].status);
  EXPECT_TRUE(test::HoldsBytesFrom(buffer.span(), 0));
  EXPECT_EQ(CachedPages(path, 0, kBytes), 0);
}

}  // namespace
}  // namespace deltafin
