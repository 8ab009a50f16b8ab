// flaky_pread: a library to preload (LD_PRELOAD) into a program whose drives should misbehave. Linux only.
//
// Looks at reads into page-aligned memory, which are those of the I/O engine "pread", and leaves all others alone.
// FLAKY_PREAD=KIND[:PART_OF_PATH[:N]]: the first N reads of files whose path contains PART_OF_PATH are well, then
//   again     two of three calls fail with EAGAIN, or with EINTR
//   short     a call reads a part of what was asked
//   fail      every call fails with EIO
//   hang      no call returns
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

constexpr size_t kPage = 4096;

struct Fault {
  std::string kind, path;
  unsigned long well = 0;
};

Fault Parse() {
  Fault fault;
  const char* text = std::getenv("FLAKY_PREAD");
  if (text == nullptr) return fault;
  const std::string all = text;
  const size_t path_at = all.find(':'), count_at = path_at == std::string::npos ? path_at : all.find(':', path_at + 1);
  fault.kind = all.substr(0, path_at);
  if (path_at != std::string::npos) fault.path = all.substr(path_at + 1, count_at - path_at - 1);
  if (count_at != std::string::npos) fault.well = std::strtoul(all.c_str() + count_at + 1, nullptr, 10);
  return fault;
}

std::string PathOf(int fd) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

ssize_t Read(int fd, void* out, size_t bytes, off_t offset) {
  static const Fault fault = Parse();
  static std::atomic<unsigned long> reads{0};
  const auto plain = [&](size_t count) { return syscall(SYS_pread64, fd, out, count, offset); };
  if (fault.kind.empty() || reinterpret_cast<uintptr_t>(out) % kPage != 0) return plain(bytes);
  if (PathOf(fd).find(fault.path) == std::string::npos) return plain(bytes);
  const unsigned long number = reads++;
  if (number < fault.well) return plain(bytes);
  if (fault.kind == "hang")
    for (;;) pause();
  if (fault.kind == "fail" || (fault.kind == "again" && number % 3 != 0)) {
    errno = fault.kind == "fail" ? EIO : number % 3 == 1 ? EAGAIN : EINTR;
    return -1;
  }
  return plain(fault.kind == "short" && bytes > kPage ? (bytes / 2 + kPage - 1) / kPage * kPage : bytes);
}

}  // namespace

extern "C" ssize_t pread(int fd, void* out, size_t bytes, off_t offset) { return Read(fd, out, bytes, offset); }
extern "C" ssize_t pread64(int fd, void* out, size_t bytes, off64_t offset) { return Read(fd, out, bytes, offset); }
