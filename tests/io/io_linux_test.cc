// What only Linux has: kernels that refuse io_uring, and file systems without direct reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "io/io_engine.h"
#include "io/test_file.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

// From here on `call` fails with `error_number` in this process.
bool Refuse(unsigned call, int error_number) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// What `text` returns in a process of its own.
template <typename Text>
std::string InAChild(Text text) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string message = text();
    const bool written = write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string message;
  std::array<char, 512> part;
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;)
    message.append(part.data(), static_cast<size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return message;
}

// Both messages of a process whose kernel refuses io_uring: of kind "uring", then the note of kind "auto".
std::string MessagesWhenRefused(int error_number) {
  return InAChild([error_number]() -> std::string {
    if (!Refuse(SYS_io_uring_setup, error_number)) return "no filter";
    const auto uring = CreateIoEngine({.kind = "uring", .depth = 2});
    std::string note;
    const auto fallback = CreateIoEngine({.kind = "auto", .depth = 2}, &note);
    return Cat(uring ? "created" : Cat(ToString(uring.error().code()), ": ", uring.error().message()), "\n",
               fallback ? (*fallback)->name() : "no fallback", ": ", note);
  });
}

struct Refusal {
  const char* name;
  int error_number;
  const char* advice;
};

class UringRefused : public testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(Kernel, UringRefused,
                         testing::Values(Refusal{"Old", ENOSYS, "Linux 5.6"},
                                         Refusal{"SwitchedOff", EPERM, "kernel.io_uring_disabled"},
                                         Refusal{"LockedMemory", ENOMEM, "ulimit -l"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(UringRefused, IsUnavailableWithAdviceAndAutoFallsBackWithANote) {
  const std::string messages = MessagesWhenRefused(GetParam().error_number);
  if (messages == "no filter") GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_THAT(messages, testing::StartsWith("unavailable: io_uring: "));
  EXPECT_THAT(messages, HasSubstr(GetParam().advice));
  EXPECT_THAT(messages, HasSubstr("\npread: reading with pread instead of io_uring: "));
}

// Reads once, has io_uring_enter refused, then reads twice and waits for a wake-up: what each brought.
std::string ReadsOfARefusedRing(const std::string& path, std::byte* buffer) {
  auto engine = CreateIoEngine({.kind = "uring", .depth = 4});
  const Result<DirectFile> file = DirectFile::Open(path);
  if (!engine || !file) return "no ring";
  std::array<IoCompletion, 4> done;
  std::string text;
  const auto wait = [&] {
    const size_t count = (*engine)->Wait(done, 10'000'000'000);
    for (size_t i = 0; i < count; ++i)
      text += Cat(done[i].id, ": ", done[i].status ? "ok" : done[i].status.error().message(), "\n");
    return count;
  };
  (*engine)->Submit(1, {&*file, 0, 1000, buffer});
  while (wait() == 0) {
  }
  if (!Refuse(SYS_io_uring_enter, EINVAL)) return "no filter";
  (*engine)->Submit(2, {&*file, 0, 1000, buffer});
  for (size_t ended = 0; ended < 1;) ended += wait();
  (*engine)->Submit(3, {&*file, 1000, 1000, buffer});
  for (size_t ended = 0; ended < 1;) ended += wait();
  (*engine)->Wake();
  return text + Cat(wait(), " after the wake-up");
}

TEST(UringEngine, ReadsFailInsteadOfTheProcessWhenTheKernelRefusesToGoOn) {
  const test::TempFolder folder;
  test::WriteTestFile(folder.path() + "/a", 10'000);
  const AlignedBuffer buffer = test::MakeBuffer(16'384);
  const std::string text = InAChild([&] { return ReadsOfARefusedRing(folder.path() + "/a", buffer.data()); });
  if (text == "no filter" || text == "no ring") GTEST_SKIP() << text;
  EXPECT_THAT(text,
              testing::StartsWith("1: ok\n2: reading " + folder.path() + "/a: bytes 0 to 1000: io_uring_enter: "));
  EXPECT_THAT(text, HasSubstr("\n3: reading " + folder.path() + "/a: bytes 1000 to 2000: io_uring_enter: "));
  EXPECT_THAT(text, testing::EndsWith("\n0 after the wake-up"));
}

TEST(DirectFile, OpensBufferedWhereDirectReadsAreRefused) {
  const char* path = "/proc/filesystems";  // a regular file of a file system without direct reads
  if (access(path, R_OK) != 0) GTEST_SKIP() << "no " << path;
  const Result<DirectFile> file = DirectFile::Open(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(file->buffered());
  EXPECT_EQ(file->alignment(), 1u);

  const AlignedBuffer buffer = test::MakeBuffer(4096);
  const auto engine = CreateIoEngine({.kind = "pread", .depth = 1});
  ASSERT_TRUE(engine);
  (*engine)->Submit(1, {&*file, 0, 5, buffer.data()});
  std::array<IoCompletion, 1> done;
  while ((*engine)->Wait(done, -1) == 0) {
  }
  ASSERT_TRUE(done[0].status) << done[0].status.error().message();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer.data()), 5), "nodev");
}

}  // namespace
}  // namespace deltafin
