#include "io/drive_test_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/units.h"
#include "io/page_cache.h"

namespace deltafin {
namespace {

constexpr uint64_t kWriteBytes = 4 * kMiB;

// Closes and, until it was told that the name is gone, removes.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& folder) : path_(Cat(folder, "/.deltafin-drive-test-", getpid())) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    named_ = fd_ >= 0;
  }
  ~TemporaryFile() {
    Unname();
    if (fd_ >= 0) close(fd_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void Unname() {
    if (named_) unlink(path_.c_str());
    named_ = false;
  }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
  bool named_ = false;
};

Status CheckSpace(const std::string& folder, uint64_t bytes) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0)
    return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, folder, ": ", std::strerror(errno));
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (free < bytes + kSpaceLeftAlone)
    return Fail(ErrorCode::kUnavailable, folder, ": no space for a test file: expected ",
                FormatBytes(bytes + kSpaceLeftAlone), " free (", FormatBytes(kSpaceLeftAlone),
                " of them left alone), got ", FormatBytes(free), ": use a smaller --size");
  return {};
}

// Every block differs, so that nothing between here and the drive can store it shorter.
void FillBlock(std::vector<uint64_t>& block, std::mt19937_64& random) {
  uint64_t state = random() | 1;
  for (uint64_t& word : block) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    word = state;
  }
}

Status WriteBlock(int fd, const std::vector<uint64_t>& block, const std::string& path) {
  const char* at = reinterpret_cast<const char*>(block.data());
  size_t left = block.size() * sizeof(uint64_t);
  while (left > 0) {
    const ssize_t n = write(fd, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return Fail(errno == ENOSPC ? ErrorCode::kUnavailable : ErrorCode::kIo, path,
                  ": cannot write the test file: ", std::strerror(n < 0 ? errno : ENOSPC));
    at += n;
    left -= static_cast<size_t>(n);
  }
  return {};
}

// Bytes written: options.bytes, or less when time is up.
Result<uint64_t> Fill(const TemporaryFile& file, const OwnFileOptions& options, const Clock& clock,
                      CancelToken cancel) {
  std::vector<uint64_t> block(kWriteBytes / sizeof(uint64_t));
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  const int64_t start = clock.NowNs();
  uint64_t done = 0;
  while (done < options.bytes) {
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "interrupted");
    FillBlock(block, random);
    DFIN_TRY_VOID(WriteBlock(file.fd(), block, file.path()));
    done += kWriteBytes;
    // Flushed now and then: else all the time goes into one flush at the end that nobody can interrupt.
    if (done % (64 * kMiB) == 0 && fsync(file.fd()) != 0)
      return Fail(ErrorCode::kIo, file.path(), ": cannot flush: ", std::strerror(errno));
    if (done >= kLeastOwnBytes && SecondsBetween(start, clock.NowNs()) > options.seconds) break;
  }
  if (fsync(file.fd()) != 0) return Fail(ErrorCode::kIo, file.path(), ": cannot flush: ", std::strerror(errno));
  return done;
}

}  // namespace

Result<DriveTestFiles> DriveTestFiles::Existing(const std::vector<std::string>& paths) {
  DriveTestFiles files;
  for (const std::string& path : paths) {
    DFIN_TRY(DirectFile direct, DirectFile::Open(path));
    DFIN_TRY(DirectFile buffered, DirectFile::OpenBuffered(path));
    files.bytes_.push_back(direct.size());
    files.direct_.push_back(std::move(direct));
    files.buffered_.push_back(std::move(buffered));
  }
  return files;
}

Result<DriveTestFiles> DriveTestFiles::Own(const std::string& folder, const OwnFileOptions& options, const Clock& clock,
                                           CancelToken cancel) {
  DFIN_TRY_VOID(CheckSpace(folder, options.bytes));
  TemporaryFile own(folder);
  if (own.fd() < 0) {
    const bool refused = errno == EROFS || errno == EACCES || errno == EPERM;
    return Fail(refused ? ErrorCode::kInvalidArgument : ErrorCode::kIo, folder,
                ": cannot make a test file: ", std::strerror(errno));
  }
  // So that both readers see its size when they open it, which is before its name goes.
  if (ftruncate(own.fd(), static_cast<off_t>(options.bytes)) != 0)
    return Fail(ErrorCode::kIo, own.path(), ": ", std::strerror(errno));
  DFIN_TRY(DriveTestFiles files, Existing({own.path()}));
  own.Unname();
  DFIN_TRY(files.bytes_[0], Fill(own, options, clock, cancel));
  ForgetPages(files.buffered_[0], 0, files.bytes_[0]);
  files.own_ = true;
  return files;
}

bool DriveTestFiles::can_read_directly() const {
  return std::none_of(direct_.begin(), direct_.end(), [](const DirectFile& file) { return file.buffered(); });
}

void DriveTestFiles::Forget(const std::vector<UnreadSpans::Span>& spans) const {
  for (const UnreadSpans::Span& span : spans) ForgetPages(buffered_[span.file], span.offset, span.bytes);
}

double DriveTestFiles::CachedPart(const std::vector<UnreadSpans::Span>& spans) const {
  uint64_t bytes = 0, cached = 0;
  for (const UnreadSpans::Span& span : spans) {
    bytes += span.bytes;
    cached += CachedBytes(buffered_[span.file], span.offset, span.bytes);
  }
  return bytes == 0 ? 0 : static_cast<double>(cached) / static_cast<double>(bytes);
}

}  // namespace deltafin
