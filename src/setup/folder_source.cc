// The ModelSource that is a folder of this machine: a download by other means, a snapshot of the hub's cache, a disk
// that somebody brought.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "checkpoint/hex.h"
#include "checkpoint/integrity.h"
#include "setup/file_check.h"
#include "setup/model_source.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{4} << 20;

class FolderSource final : public ModelSource {
 public:
  explicit FolderSource(std::string folder) : folder_(std::move(folder)) {}

  Json Identity() const override {
    Json identity;
    identity["folder"] = folder_;
    return identity;
  }
  std::string Name() const override { return folder_; }

  // Its "commit" is a hash of names, sizes and times: another one is another download.
  Result<HubListing> List(const std::string& commit, CancelToken cancel) override {
    std::vector<HubFile> files;
    std::string stamps;
    std::error_code failed;
    for (fs::recursive_directory_iterator it(folder_, failed), end; !failed && it != end; it.increment(failed)) {
      if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, folder_, ": stopped");
      struct stat info {};
      if (stat(it->path().c_str(), &info) != 0)
        return Fail(ErrorCode::kIo, it->path().string(), ": ", std::strerror(errno),
                    ": expected a file, a folder or a link to one: mend or remove it");
      if (!S_ISREG(info.st_mode)) continue;
      HubFile file;
      file.path = fs::path(it->path()).lexically_relative(folder_).generic_string();
      if (file.path.ends_with(".part") || file.path.find(".part-") != std::string::npos) continue;
      DFIN_TRY_VOID(CheckHubPath(file.path));
      file.size = static_cast<uint64_t>(info.st_size);
      files.push_back(file);
    }
    if (failed) return Fail(ErrorCode::kIo, folder_, ": ", failed.message());
    DFIN_TRY(HubListing listing, MakeListing("", std::move(files)));
    for (const HubFile& file : listing.files) {
      struct stat info {};
      if (stat(Path(file).c_str(), &info) != 0) return Fail(ErrorCode::kIo, Path(file), ": ", std::strerror(errno));
      stamps += Cat(file.path, '\n', file.size, '\n', info.st_mtime, '\n');
    }
    listing.commit = ToHex(Hash64(stamps));
    if (!commit.empty() && commit != listing.commit)
      return Fail(ErrorCode::kCorrupt, folder_,
                  ": expected the files as they were when the copy began, got others: remove deltafin-setup.journal in "
                  "the target folder to start over with these; what is there and equal is kept");
    return listing;
  }
  std::string ChangedSince(const std::string&, CancelToken) override { return ""; }

  Status FetchRange(const HubFile& file, uint64_t offset, uint64_t length, const RangeSink& sink,
                    CancelToken cancel) override {
    const std::string path = Path(file);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Fail(ErrorCode::kIo, path, ": ", std::strerror(errno));
    Status status = Read(fd, path, offset, length, sink, cancel);
    close(fd);
    return status;
  }
  Status FetchWhole(const HubFile& file, const RangeSink& sink, CancelToken cancel) override {
    return FetchRange(file, 0, file.size, sink, cancel);
  }
  Result<HubFile> WithChecksum(const HubFile& file, const std::function<void()>& tick, CancelToken cancel) override {
    HubFile with = file;
    DFIN_TRY(with.sha256, Sha256OfFile(Path(file), file.size, tick, cancel));
    return with;
  }

 private:
  std::string Path(const HubFile& file) const { return folder_ + "/" + file.path; }

  static Status Read(int fd, const std::string& path, uint64_t offset, uint64_t length, const RangeSink& sink,
                     CancelToken cancel) {
    std::vector<std::byte> buffer(kPieceBytes);
    for (uint64_t done = 0; done < length;) {
      if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, path, ": stopped");
      const auto want = static_cast<size_t>(std::min<uint64_t>(buffer.size(), length - done));
      const ssize_t n = pread(fd, buffer.data(), want, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Fail(ErrorCode::kIo, "reading ", path, ": ", std::strerror(errno));
      if (n == 0) return Fail(ErrorCode::kCorrupt, path, ": expected ", offset + length, " bytes, got ", offset + done);
      DFIN_TRY_VOID(sink(offset + done, Bytes(buffer).first(static_cast<size_t>(n))));
      done += static_cast<uint64_t>(n);
    }
    return {};
  }

  const std::string folder_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> MakeFolderSource(const std::string& folder) {
  std::error_code failed;
  const fs::path full = fs::canonical(folder, failed);
  if (failed) return Fail(ErrorCode::kNotFound, folder, ": ", failed.message());
  if (!fs::is_directory(full)) return Fail(ErrorCode::kInvalidArgument, folder, ": expected a folder, got a file");
  return std::unique_ptr<ModelSource>(std::make_unique<FolderSource>(full.string()));
}

}  // namespace deltafin
