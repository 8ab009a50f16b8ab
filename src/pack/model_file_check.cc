#include "pack/model_file_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "pack/output_file.h"

namespace deltafin {
namespace {

constexpr uint64_t kDropEvery = uint64_t{256} << 20;

// Closes when it dies.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<std::string> DigestOfFile(const std::string& path, uint64_t bytes, Digest digest,
                                 const std::function<void()>& tick, CancelToken cancel) {
  const Descriptor in{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (in.fd < 0) return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path, ": ", std::strerror(errno));
  struct stat info {};
  if (fstat(in.fd, &info) != 0 || !S_ISREG(info.st_mode))
    return Fail(ErrorCode::kCorrupt, path, ": expected a regular file");
  if (static_cast<uint64_t>(info.st_size) != bytes)
    return Fail(ErrorCode::kCorrupt, path, ": expected ", bytes, " bytes, got ", info.st_size);
  std::vector<std::byte> buffer(size_t{kCheckPieceBytes});
  uint64_t since_drop = 0;
  for (uint64_t done = 0; done < bytes;) {
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, path, ": stopped");
    const ssize_t n = pread(in.fd, buffer.data(), buffer.size(), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Fail(ErrorCode::kIo, "reading ", path, ": ", std::strerror(errno));
    if (n == 0) return Fail(ErrorCode::kCorrupt, path, ": expected ", bytes, " bytes, got ", done);
    DFIN_TRY_VOID(digest.Add(Bytes(buffer).first(static_cast<size_t>(n))));
    done += static_cast<uint64_t>(n);
    since_drop += static_cast<uint64_t>(n);
    if (since_drop >= kDropEvery) {
      system_file::DropCache(in.fd);
      since_drop = 0;
    }
    if (tick) tick();
  }
  system_file::DropCache(in.fd);
  return digest.Finish();
}

Status CheckModelFile(const std::string& path, const ModelFile& expected, const std::function<void()>& tick,
                      CancelToken cancel) {
  const bool git = expected.sha256.empty();
  DFIN_TRY(Digest digest, git ? Digest::GitSha1(expected.bytes) : Digest::Sha256());
  DFIN_TRY(const std::string got, DigestOfFile(path, expected.bytes, std::move(digest), tick, cancel));
  if (got == (git ? expected.git_sha1 : expected.sha256)) return {};
  return Fail(ErrorCode::kCorrupt, path, ": expected ", git ? "git sha1 " : "sha256 ",
              git ? expected.git_sha1 : expected.sha256, ", got ", got);
}

}  // namespace deltafin
