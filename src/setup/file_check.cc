#include "setup/file_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "pack/output_file.h"
#include "base/digest.h"

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

Result<std::string> HashFile(const std::string& path, uint64_t size, Digest digest, const std::function<void()>& tick,
                             CancelToken cancel) {
  const Descriptor in{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (in.fd < 0) return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path, ": ", std::strerror(errno));
  struct stat info {};
  if (fstat(in.fd, &info) != 0 || !S_ISREG(info.st_mode))
    return Fail(ErrorCode::kCorrupt, path, ": expected a regular file");
  if (static_cast<uint64_t>(info.st_size) != size)
    return Fail(ErrorCode::kCorrupt, path, ": expected ", size, " bytes, got ", info.st_size);
  std::vector<std::byte> buffer(size_t{kCheckPieceBytes});
  uint64_t since_drop = 0;
  for (uint64_t done = 0; done < size;) {
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, path, ": stopped");
    const ssize_t n = pread(in.fd, buffer.data(), buffer.size(), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Fail(ErrorCode::kIo, "reading ", path, ": ", std::strerror(errno));
    if (n == 0) return Fail(ErrorCode::kCorrupt, path, ": expected ", size, " bytes, got ", done);
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

Result<Digest> DigestFor(const HubFile& file) {
  return file.sha256.empty() ? Digest::GitSha1(file.size) : Digest::Sha256();
}

Status Compare(const std::string& path, const HubFile& file, const std::string& got) {
  const std::string& expected = file.sha256.empty() ? file.git_sha1 : file.sha256;
  if (expected == got) return {};
  return Fail(ErrorCode::kCorrupt, path, ": expected ", file.sha256.empty() ? "git sha1 " : "sha256 ", expected,
              ", got ", got);
}

}  // namespace

Status CheckFile(const std::string& path, const HubFile& file, const std::function<void()>& tick, CancelToken cancel) {
  DFIN_TRY(Digest digest, DigestFor(file));
  DFIN_TRY(const std::string got, HashFile(path, file.size, std::move(digest), tick, cancel));
  return Compare(path, file, got);
}

Status CheckBytes(Bytes bytes, const HubFile& file) {
  if (bytes.size() != file.size)
    return Fail(ErrorCode::kCorrupt, file.path, ": expected ", file.size, " bytes, got ", bytes.size());
  // A folder's list has no checksums: its files are read there again when they are compared.
  if (file.sha256.empty() && file.git_sha1.empty()) return {};
  DFIN_TRY(Digest digest, DigestFor(file));
  DFIN_TRY_VOID(digest.Add(bytes));
  DFIN_TRY(const std::string got, digest.Finish());
  return Compare(file.path, file, got);
}

Result<std::string> Sha256OfFile(const std::string& path, uint64_t size, const std::function<void()>& tick,
                                 CancelToken cancel) {
  DFIN_TRY(Digest digest, Digest::Sha256());
  return HashFile(path, size, std::move(digest), tick, cancel);
}

}  // namespace deltafin
