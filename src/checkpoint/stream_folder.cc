#include "checkpoint/stream_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/integrity.h"
#include "checkpoint/shard_file.h"
#include "io/punch_hole.h"

namespace deltafin {

namespace fs = std::filesystem;

namespace {

// Linux moves at most 2^31 - 4096 bytes in one write.
constexpr size_t kLargestWrite = size_t{64} << 20;

Failure WriteFailure(std::string_view doing, const std::string& path, int error) {
  if (error == ENOSPC || error == EDQUOT)
    return Fail(ErrorCode::kUnavailable, doing, " ", path, ": ", std::strerror(error),
                ": free some space there; what was fetched before stays");
  return Fail(ErrorCode::kIo, doing, " ", path, ": ", std::strerror(error));
}

Status WriteAt(int fd, Bytes bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), std::min(bytes.size(), kLargestWrite), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return WriteFailure("writing", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return {};
}

Status Flush(int fd, const std::string& path) {
  return fsync(fd) == 0 ? Status() : Status(WriteFailure("flushing", path, errno));
}

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);  // some file systems refuse, which is no error
  close(fd);
}

std::string PartialFolder(const std::string& folder) { return Cat(folder, "/", kPartialFolder); }
std::string MapPath(const std::string& folder) { return Cat(PartialFolder(folder), "/", kPresenceName); }

Status WriteManifest(const std::string& folder, const StreamManifest& manifest) {
  const std::string text = manifest.ToText();
  return WriteFileAtomically(Cat(folder, "/", kStreamManifestName), std::as_bytes(std::span(text)));
}

Status WriteEmptyMap(const std::string& folder, const StreamManifest& manifest) {
  const std::string header = PresenceHeader(manifest.Id());
  return WriteFileAtomically(MapPath(folder), std::as_bytes(std::span(header)));
}

Status MakePartialFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(PartialFolder(folder), error);
  if (!error) return {};
  return Fail(ErrorCode::kIo, PartialFolder(folder), ": cannot make this folder: ", error.message());
}

// A sparse file of its final size.
Status MakeSparse(const std::string& path, uint64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return WriteFailure("making", path, errno);
  Status status;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) status = WriteFailure("making", path, errno);
  if (status) status = Flush(fd, path);
  close(fd);
  return status;
}

}  // namespace

Status StreamFolder::Create(const std::string& folder, const StreamManifest& manifest) {
  DFIN_TRY_VOID(MakePartialFolder(folder));
  for (const StreamFile& file : manifest.files)
    if (!StampFile(Cat(folder, "/", file.name)))  // a whole one that somebody put there is used, once it was compared
      DFIN_TRY_VOID(MakeSparse(Cat(PartialFolder(folder), "/", file.name), file.bytes));
  DFIN_TRY_VOID(WriteEmptyMap(folder, manifest));
  SyncFolder(PartialFolder(folder));
  return WriteManifest(folder, manifest);
}

StreamFolder::StreamFolder(std::string folder, StreamManifest manifest, uint64_t most_expert_bytes)
    : folder_(std::move(folder)),
      most_expert_bytes_(most_expert_bytes),
      manifest_(std::move(manifest)),
      map_(manifest_.files.size()),
      published_(manifest_.files.size()),
      compared_(manifest_.files.size()),
      fds_(manifest_.files.size(), -1) {}

StreamFolder::~StreamFolder() {
  for (const int fd : fds_)
    if (fd >= 0) close(fd);
  if (map_fd_ >= 0) close(map_fd_);
  if (lock_fd_ >= 0) close(lock_fd_);
}

Result<std::unique_ptr<StreamFolder>> StreamFolder::Open(const std::string& folder, Use use,
                                                         uint64_t most_expert_bytes) {
  DFIN_TRY(StreamManifest manifest, ReadStreamManifest(folder));
  std::unique_ptr<StreamFolder> opened(new StreamFolder(folder, std::move(manifest), most_expert_bytes));
  if (use == Use::kFill) DFIN_TRY_VOID(MakePartialFolder(folder));
  DFIN_TRY_VOID(opened->Lock(use));
  DFIN_TRY_VOID(opened->OpenMap(use));
  opened->FindPublished();
  if (use == Use::kFill) DFIN_TRY_VOID(opened->BeginAnew());
  return opened;
}

void StreamFolder::FindPublished() {
  for (size_t i = 0; i < published_.size(); ++i) {
    const StreamFile& file = manifest_.files[i];
    const Result<FileStamp> stamp = StampFile(Cat(folder_, "/", file.name));
    published_[i] = stamp.has_value();
    compared_[i] = stamp && stamp->bytes == file.bytes &&
                   map_.ComparedAt(static_cast<int32_t>(i)) == static_cast<uint64_t>(stamp->modified_ns);
  }
}

// Files that have neither their final name nor all their room. Before one is made again the map says that nothing of it
// is there, and before that the manifest that runs may not begin.
Status StreamFolder::BeginAnew() {
  std::vector<size_t> lost;
  std::vector<PresenceEntry> dropped;
  for (size_t i = 0; i < published_.size(); ++i) {
    const StreamFile& file = manifest_.files[i];
    if (published_[i]) continue;
    const Result<FileStamp> stamp = StampFile(Cat(PartialFolder(folder_), "/", file.name));
    if (stamp && stamp->bytes == file.bytes) continue;
    if (!stamp && stamp.error().code() != ErrorCode::kNotFound) return Failure(Error(stamp.error()));
    lost.push_back(i);
    for (const PresenceEntry& entry : map_.Of(static_cast<int32_t>(i)))
      dropped.push_back({PresenceKind::kDropped, entry.range, 0});
  }
  if (lost.empty()) return {};
  if (manifest_.dense_complete) DFIN_TRY_VOID(SetDenseComplete(false));
  if (!dropped.empty()) DFIN_TRY_VOID(Append(dropped));
  for (const size_t i : lost)
    DFIN_TRY_VOID(MakeSparse(Cat(PartialFolder(folder_), "/", manifest_.files[i].name), manifest_.files[i].bytes));
  SyncFolder(PartialFolder(folder_));
  return {};
}

Status StreamFolder::Lock(Use use) {
  const std::string partial = PartialFolder(folder_);
  lock_fd_ = open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_fd_ < 0)
    return Fail(ErrorCode::kNotFound, partial, ": expected this folder beside ", kStreamManifestName,
                ", got: ", std::strerror(errno), ": give the `deltafin setup --dense-only` command again");
  if (flock(lock_fd_, (use == Use::kRead ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return Fail(ErrorCode::kUnavailable, folder_, ": expected to be alone with this folder, got another deltafin that ",
              use == Use::kRead ? "fetches experts into it: wait for it to end"
                                : "uses it: wait for it to end; several at once can only read, with --offline");
}

Status StreamFolder::OpenMap(Use use) {
  const std::string path = MapPath(folder_);
  const Result<FileStamp> stamp = StampFile(path);
  const bool lost = stamp ? stamp->bytes < kPresenceHeaderBytes : stamp.error().code() == ErrorCode::kNotFound;
  if (lost && use == Use::kRead)
    return Fail(ErrorCode::kNotFound, path, ": expected the map of what was fetched, got ",
                stamp ? "an empty file" : "nothing of that name",
                ": give the `deltafin setup --dense-only` command again");
  if (lost) DFIN_TRY_VOID(WriteEmptyMap(folder_, manifest_));
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMaxPresenceBytes));
  DFIN_TRY(const PresenceContents contents, ParsePresence(std::as_bytes(std::span(text)), manifest_, path));
  for (const PresenceEntry& entry : contents.entries) map_.Apply(entry);
  damaged_entries_ = contents.damaged;
  if (use == Use::kRead) return {};
  map_fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (map_fd_ < 0) return WriteFailure("opening", path, errno);
  map_end_ = contents.good_bytes;
  // What an interrupted write left behind.
  if (map_end_ < text.size() && ftruncate(map_fd_, static_cast<off_t>(map_end_)) != 0)
    return WriteFailure("shortening", path, errno);
  return {};
}

std::string StreamFolder::PathOf(int32_t file) const {
  const std::string& name = manifest_.files[static_cast<size_t>(file)].name;
  return published(file) ? Cat(folder_, "/", name) : Cat(PartialFolder(folder_), "/", name);
}

bool StreamFolder::published(int32_t file) const {
  const std::lock_guard lock(mutex_);
  return published_[static_cast<size_t>(file)];
}

bool StreamFolder::compared(int32_t file) const {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<size_t>(file);
  return published_[number] && compared_[number];
}

Status StreamFolder::SetCompared(int32_t file, int64_t modified_ns) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<size_t>(file);
  const PresenceEntry entry{
      PresenceKind::kWhole, {file, 0, manifest_.files[number].bytes}, static_cast<uint64_t>(modified_ns)};
  DFIN_TRY_VOID(Append({&entry, 1}));
  compared_[number] = true;
  return {};
}

Status StreamFolder::SetEndpoint(const std::string& endpoint) {
  manifest_.endpoint = endpoint;
  return WriteManifest(folder_, manifest_);
}

bool StreamFolder::Has(const FileRange& range) const {
  const std::lock_guard lock(mutex_);
  return published_[static_cast<size_t>(range.file)] || map_.HashOf(range).has_value();
}

std::optional<uint64_t> StreamFolder::HashOf(const FileRange& range) const {
  const std::lock_guard lock(mutex_);
  return map_.HashOf(range);
}

void StreamFolder::Doubt(const FileRange& range) {
  const std::lock_guard lock(mutex_);
  map_.Forget(range);
}

// Under the lock.
Result<int> StreamFolder::WritableFile(int32_t file) {
  int& fd = fds_[static_cast<size_t>(file)];
  if (fd >= 0) return fd;
  const std::string path = Cat(PartialFolder(folder_), "/", manifest_.files[static_cast<size_t>(file)].name);
  fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return WriteFailure("opening", path, errno);
  return fd;
}

// Under the lock. After a failure nothing more is appended: what reached the drive is not known.
Status StreamFolder::Append(std::span<const PresenceEntry> entries) {
  const std::string path = MapPath(folder_);
  if (map_fd_ < 0 || map_failed_)
    return Fail(ErrorCode::kIo, path, ": cannot be written since an earlier write failed: give the command again");
  std::string text;
  for (const PresenceEntry& entry : entries) text += PresenceEntryText(entry, manifest_.Id());
  Status status = WriteAt(map_fd_, std::as_bytes(std::span(text)), map_end_, path);
  if (status) status = Flush(map_fd_, path);
  if (!status) {
    map_failed_ = true;
    (void)ftruncate(map_fd_, static_cast<off_t>(map_end_));
    return status;
  }
  map_end_ += text.size();
  for (const PresenceEntry& entry : entries) map_.Apply(entry);
  return {};
}

// Under the lock, holes included: nobody can fetch an expert again before its old bytes are gone.
Status StreamFolder::MakeRoom(uint64_t bytes, const std::function<bool(const FileRange&)>& busy) {
  std::vector<PresenceEntry> dropped;
  uint64_t age = 0, freed = 0;
  while (map_.expert_bytes() + reserved_ + bytes > most_expert_bytes_ + freed) {
    const std::optional<FileRange> oldest = map_.Oldest(&age);
    if (!oldest) break;
    if (published_[static_cast<size_t>(oldest->file)] || (busy && busy(*oldest))) continue;
    dropped.push_back({PresenceKind::kDropped, *oldest, 0});
    freed += oldest->bytes;
  }
  if (dropped.empty()) return {};
  DFIN_TRY_VOID(Append(dropped));
  for (const PresenceEntry& entry : dropped) {
    DFIN_TRY(const int fd, WritableFile(entry.range.file));
    if (const int error = PunchHole(fd, entry.range.offset, entry.range.bytes); error != 0)
      return Fail(ErrorCode::kUnsupported, "--keep-experts: giving back the room of an expert in ", folder_, ": ",
                  std::strerror(error), ": this file system takes no holes: leave --keep-experts out");
  }
  return {};
}

Status StreamFolder::Put(const Piece& piece, const std::function<bool(const FileRange&)>& busy) {
  const bool bounded = piece.kind == PresenceKind::kExpert && most_expert_bytes_ > 0;
  const uint64_t reserve = bounded ? piece.bytes.size() : 0;
  int fd = -1;
  {
    const std::lock_guard lock(mutex_);
    if (bounded) DFIN_TRY_VOID(MakeRoom(piece.bytes.size(), busy));
    DFIN_TRY(fd, WritableFile(piece.file));
    reserved_ += reserve;
  }
  const std::string path = PathOf(piece.file);
  Status status = WriteAt(fd, piece.bytes, piece.offset, path);
  if (status) status = Flush(fd, path);
  std::vector<PresenceEntry> entries;
  uint64_t at = 0;
  for (const uint64_t size : piece.sizes) {
    entries.push_back({piece.kind, {piece.file, piece.offset + at, size}, Hash64(piece.bytes.subspan(at, size))});
    at += size;
  }
  DFIN_CHECK(at == piece.bytes.size(), "the sizes are those of the bytes");
  const std::lock_guard lock(mutex_);
  reserved_ -= reserve;
  if (!status) return status;
  return Append(entries);
}

Status StreamFolder::SetDenseComplete(bool complete) {
  if (manifest_.dense_complete == complete) return {};
  manifest_.dense_complete = complete;
  return WriteManifest(folder_, manifest_);
}

bool StreamFolder::IsWhole(int32_t file) const {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<size_t>(file);
  return published_[number] || map_.Covers({file, 0, manifest_.files[number].bytes});
}

Status StreamFolder::Publish(int32_t file) {
  const std::string& name = manifest_.files[static_cast<size_t>(file)].name;
  const std::string from = Cat(PartialFolder(folder_), "/", name), to = Cat(folder_, "/", name);
  // Noted first: between note and name there is no file that the note speaks of, so it says nothing yet.
  DFIN_TRY(const FileStamp stamp, StampFile(from));
  DFIN_TRY_VOID(SetCompared(file, stamp.modified_ns));
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return Fail(ErrorCode::kIo, to, ": cannot be given its name: ", error.message());
  SyncFolder(folder_);
  SyncFolder(PartialFolder(folder_));
  const std::lock_guard lock(mutex_);
  published_[static_cast<size_t>(file)] = true;
  return {};
}

Status StreamFolder::Finish() {
  const Totals now = totals();
  DFIN_CHECK(now.published == manifest_.files.size(), "a shard has no final name yet");
  std::error_code error;
  fs::remove(Cat(folder_, "/", kStreamManifestName), error);
  if (error) return Fail(ErrorCode::kIo, folder_, "/", kStreamManifestName, ": cannot be removed: ", error.message());
  SyncFolder(folder_);
  fs::remove_all(PartialFolder(folder_), error);
  if (error) return Fail(ErrorCode::kIo, PartialFolder(folder_), ": cannot be removed: ", error.message());
  return {};
}

StreamFolder::Totals StreamFolder::totals() const {
  const std::lock_guard lock(mutex_);
  return {map_.experts(), map_.expert_bytes(),
          static_cast<uint64_t>(std::count(published_.begin(), published_.end(), true)), damaged_entries_};
}

std::vector<PresenceEntry> StreamFolder::Ranges(int32_t file) const {
  const std::lock_guard lock(mutex_);
  return map_.Of(file);
}

}  // namespace deltafin
