#include "io/test_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace deltafin::test {

std::byte ByteAt(uint64_t offset) {
  uint64_t x = offset * 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  return static_cast<std::byte>(x * 0xBF58476D1CE4E5B9ull >> 56);
}

std::vector<std::byte> ContentsOf(uint64_t bytes) {
  std::vector<std::byte> contents(bytes);
  for (uint64_t i = 0; i < bytes; ++i) contents[i] = ByteAt(i);
  return contents;
}

void WriteTestFile(const std::string& path, uint64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const std::vector<std::byte> contents = ContentsOf(bytes);
  ASSERT_EQ(write(fd, contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
  ASSERT_EQ(fsync(fd), 0);
  close(fd);
}

bool HoldsBytesFrom(Bytes got, uint64_t offset) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != ByteAt(offset + i)) return false;
  }
  return true;
}

AlignedBuffer MakeBuffer(uint64_t bytes) {
  Result<AlignedBuffer> buffer = AlignedBuffer::Create(bytes);
  EXPECT_TRUE(buffer);
  return std::move(*buffer);
}

}  // namespace deltafin::test
