#include "setup/stream_fill.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/model_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/integrity.h"
#include "checkpoint/shard_file.h"
#include "io/direct_file.h"
#include "setup/stream_layout.h"

namespace deltafin {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr uint64_t kJoinBytes = uint64_t{64} << 20;  // of adjacent experts, fetched as one range
constexpr uint64_t kHashBlock = uint64_t{8} << 20;
constexpr int kMostTries = 2;        // of a whole file
constexpr int kMostHeaderTries = 5;  // a header that makes no sense comes again

// Adjacent ranges that are fetched as one.
struct Job {
  PresenceKind kind = PresenceKind::kDense;
  FileRange all;
  std::vector<uint64_t> sizes;
};

class Filler {
 public:
  Filler(StreamFolder& folder, RemoteFiles& remote, const StreamFillOptions& options)
      : folder_(folder), remote_(remote), options_(options) {}

  Status Dense();
  Status All();

 private:
  size_t files() const { return folder_.manifest().files.size(); }
  const StreamFile& file(int32_t number) const { return folder_.manifest().files[static_cast<size_t>(number)]; }

  Status ReadSpec();
  // The header from the network: into its place once it makes sense.
  Status FetchHeader(int32_t number);
  Status TryHeader(int32_t number);
  // The header on disk.
  Status ReadLayout(int32_t number);
  Status ReadLayouts();
  Status FetchDense();
  // That the folder opens as a model: names, types and shapes are what the config wants.
  Status OpenModel() const;
  Status ComparePublished();
  Status FetchExpertsOf(int32_t number);
  Status CheckAndPublish(int32_t number);
  // Of a whole file, with size and checksum as listed.
  Result<bool> ChecksumIsRight(int32_t number);
  Result<bool> Compare(int32_t number);
  Status DoubtWrongRanges(int32_t number);

  // What of `ranges` is absent, adjacent ones joined up to `join_bytes`.
  std::vector<Job> Missing(const std::vector<FileRange>& ranges, PresenceKind kind, uint64_t join_bytes) const;
  Status Fetch(const Job& job);
  // Runs `work` for 0 to count - 1 on several threads, the first error ends it.
  Status InParallel(size_t count, const std::function<Status(size_t)>& work);
  void Report();

  StreamFolder& folder_;
  RemoteFiles& remote_;
  const StreamFillOptions& options_;
  std::optional<ModelSpec> spec_;
  std::vector<StreamLayout> layouts_;
  std::atomic<uint64_t> bytes_done_{0};
  std::atomic<int32_t> checking_{-1};
  uint64_t bytes_total_ = 0;
};

Status ReadFully(const DirectFile& file, uint64_t offset, MutBytes out) {
  while (!out.empty()) {
    const ssize_t got = pread(file.fd(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrorCode::kIo, "reading ", file.path(), ": ", std::strerror(errno));
    if (got == 0) return Fail(ErrorCode::kCorrupt, file.path(), ": truncated: could not read the byte at ", offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

uint64_t BytesOf(const std::vector<Job>& jobs) {
  return std::accumulate(jobs.begin(), jobs.end(), uint64_t{0},
                         [](uint64_t sum, const Job& job) { return sum + job.all.bytes; });
}

std::vector<Job> Filler::Missing(const std::vector<FileRange>& ranges, PresenceKind kind, uint64_t join_bytes) const {
  std::vector<Job> jobs;
  for (const FileRange& range : ranges) {
    if (folder_.Has(range)) continue;
    if (!jobs.empty()) {
      Job& last = jobs.back();
      const bool touches = last.all.file == range.file && last.all.offset + last.all.bytes == range.offset;
      if (touches && last.all.bytes + range.bytes <= join_bytes) {
        last.all.bytes += range.bytes;
        last.sizes.push_back(range.bytes);
        continue;
      }
    }
    jobs.push_back({kind, range, {range.bytes}});
  }
  return jobs;
}

Status Filler::Fetch(const Job& job) {
  std::vector<std::byte> bytes(job.all.bytes);
  DFIN_TRY_VOID(remote_.Read(file(job.all.file), job.all.offset, bytes, options_.cancel));
  DFIN_TRY_VOID(folder_.Put({job.kind, job.all.file, job.all.offset, bytes, job.sizes}));
  bytes_done_ += job.all.bytes;
  return {};
}

Status Filler::InParallel(size_t count, const std::function<Status(size_t)>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  Status status;
  size_t next = 0, running = 0;
  const auto loop = [&] {
    std::unique_lock lock(mutex);
    while (status && next < count) {
      const size_t mine = next++;
      lock.unlock();
      Status done = options_.cancel.cancelled() ? Status(Fail(ErrorCode::kCancelled, "fetching: stopped")) : work(mine);
      lock.lock();
      if (!done && status) status = std::move(done);
    }
    --running;
    changed.notify_all();
  };
  std::vector<std::thread> threads;
  running = std::min(count, static_cast<size_t>(std::max(1, options_.connections)));
  for (size_t i = running; i > 0; --i) threads.emplace_back(loop);
  {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kTick, [&] { return running == 0; })) {
      lock.unlock();
      Report();
      lock.lock();
    }
  }
  for (std::thread& thread : threads) thread.join();
  Report();
  return status;
}

void Filler::Report() {
  if (!options_.progress) return;
  options_.progress({.bytes_done = bytes_done_,
                     .bytes_total = std::max<uint64_t>(bytes_total_, bytes_done_),
                     .files_done = folder_.totals().published,
                     .files_total = files(),
                     .checking = checking_ < 0 ? "" : file(checking_).name});
}

Status Filler::FetchHeader(int32_t number) {
  for (int attempt = 1;; ++attempt) {
    Status status = TryHeader(number);
    if (status || status.error().code() != ErrorCode::kCorrupt) return status;
    if (attempt == kMostHeaderTries)
      return Fail(ErrorCode::kCorrupt, status.error().message(), " (fetched ", attempt,
                  " times): the connection or the hub damages data, or this is no model");
  }
}

Status Filler::TryHeader(int32_t number) {
  const StreamFile& wanted = file(number);
  char first[8] = {};
  const MutBytes first_bytes = std::as_writable_bytes(std::span(first));
  if (wanted.bytes < first_bytes.size())
    return Fail(ErrorCode::kCorrupt, wanted.name, ": expected a file with a header, got one of ", wanted.bytes,
                " bytes: is this the right repository?");
  DFIN_TRY_VOID(remote_.Read(wanted, 0, first_bytes, options_.cancel));
  DFIN_TRY(const uint64_t length, ReadHeaderLength({first, sizeof first}, wanted.bytes, wanted.name));
  std::vector<std::byte> bytes(sizeof first + length);
  DFIN_TRY_VOID(remote_.Read(wanted, 0, bytes, options_.cancel));
  if (std::memcmp(bytes.data(), first, sizeof first) != 0)
    return Fail(ErrorCode::kCorrupt, wanted.name, ": expected the same first bytes when they came twice, got others");
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + sizeof first, length);
  DFIN_TRY(const SafetensorsHeader header, SafetensorsHeader::Parse(json, wanted.name));
  if (header.file_bytes() != wanted.bytes)
    return Fail(ErrorCode::kCorrupt, wanted.name, ": expected a header of a file of ", wanted.bytes,
                " bytes, got one of ", header.file_bytes());
  Result<StreamLayout> layout = LayOut(*spec_, header, number);
  if (!layout) return FailWith(std::move(layout), wanted.name);
  const uint64_t sizes[] = {bytes.size()};
  DFIN_TRY_VOID(folder_.Put({PresenceKind::kDense, number, 0, bytes, sizes}));
  bytes_done_ += bytes.size();
  layouts_[static_cast<size_t>(number)] = std::move(*layout);
  return {};
}

Status Filler::ReadLayout(int32_t number) {
  const std::string path = folder_.PathOf(number);
  DFIN_TRY(const ShardHeader shard, ReadShardHeader(path));
  DFIN_TRY_VOID(CheckShardSize(shard, path));
  Result<StreamLayout> layout = LayOut(*spec_, shard.header, number);
  if (!layout) return FailWith(std::move(layout), path);
  layouts_[static_cast<size_t>(number)] = std::move(*layout);
  return {};
}

Status Filler::ReadSpec() {
  const std::string config_path = folder_.folder() + "/config.json";
  DFIN_TRY(const std::string config, ReadModelFile(config_path, kMaxConfigBytes));
  DFIN_TRY(spec_, ModelSpec::FromConfigText(config, config_path));
  return {};
}

Status Filler::ReadLayouts() {
  DFIN_TRY_VOID(ReadSpec());
  layouts_.resize(files());
  std::vector<int32_t> absent;
  for (int32_t i = 0; i < static_cast<int32_t>(files()); ++i) {
    const std::vector<PresenceEntry> ranges = folder_.Ranges(i);
    const bool has_header = !ranges.empty() && ranges.front().range.offset == 0;
    if (!has_header && !folder_.published(i)) {
      absent.push_back(i);
      continue;
    }
    Status read = ReadLayout(i);
    if (read) continue;
    // One that came damaged, or that the drive damaged, comes again.
    if (folder_.published(i) || read.error().code() != ErrorCode::kCorrupt) return read;
    absent.push_back(i);
  }
  return InParallel(absent.size(), [&](size_t i) { return FetchHeader(absent[i]); });
}

Status Filler::OpenModel() const {
  const Result<Checkpoint> opened = Checkpoint::Open(
      {.folder = folder_.folder(), .index_cache_folder = "", .cancel = options_.cancel, .may_be_streamed = true});
  return opened ? Status() : Status(Failure(Error(opened.error())));
}

Status Filler::FetchDense() {
  std::vector<FileRange> ranges;
  for (const StreamLayout& layout : layouts_) ranges.insert(ranges.end(), layout.dense.begin(), layout.dense.end());
  const std::vector<Job> jobs = Missing(ranges, PresenceKind::kDense, kDenseRangeBytes);
  bytes_done_ = 0;
  bytes_total_ = BytesOf(jobs);
  if (options_.on_size) DFIN_TRY_VOID(options_.on_size(bytes_total_));
  return InParallel(jobs.size(), [&](size_t i) { return Fetch(jobs[i]); });
}

Status Filler::Dense() {
  DFIN_TRY_VOID(ComparePublished());
  DFIN_TRY_VOID(ReadLayouts());
  DFIN_TRY_VOID(FetchDense());
  DFIN_TRY_VOID(folder_.SetDenseComplete(true));
  Status opened = OpenModel();
  if (opened || options_.cancel.cancelled()) return opened;
  // A header that is well formed may still have come with a wrong letter in a name: all come once more.
  DFIN_TRY_VOID(folder_.SetDenseComplete(false));
  DFIN_TRY_VOID(InParallel(files(), [&](size_t i) {
    const auto number = static_cast<int32_t>(i);
    return folder_.published(number) ? Status() : FetchHeader(number);
  }));
  DFIN_TRY_VOID(FetchDense());
  DFIN_TRY_VOID(folder_.SetDenseComplete(true));
  opened = OpenModel();
  if (opened || options_.cancel.cancelled()) return opened;
  DFIN_TRY_VOID(folder_.SetDenseComplete(false));
  return opened;
}

// Shards under their final names that nobody has compared since they were last changed.
Status Filler::ComparePublished() {
  for (int32_t i = 0; i < static_cast<int32_t>(files()); ++i) {
    if (!folder_.published(i) || folder_.compared(i)) continue;
    const std::string path = folder_.PathOf(i);
    DFIN_TRY(const FileStamp stamp, StampFile(path));
    DFIN_TRY(const bool right, ChecksumIsRight(i));
    if (!right)
      return Fail(ErrorCode::kCorrupt, path,
                  ": expected the size and checksum that the hub lists, got others: this is not the repository's file: "
                  "setup overwrites nothing: remove it to have it fetched, or give another folder with --to");
    DFIN_TRY_VOID(folder_.SetCompared(i, stamp.modified_ns));
  }
  return {};
}

Status Filler::FetchExpertsOf(int32_t number) {
  const std::vector<Job> jobs =
      Missing(layouts_[static_cast<size_t>(number)].experts, PresenceKind::kExpert, kJoinBytes);
  return InParallel(jobs.size(), [&](size_t i) { return Fetch(jobs[i]); });
}

Result<bool> Filler::ChecksumIsRight(int32_t number) {
  checking_ = number;
  Result<bool> right = Compare(number);
  checking_ = -1;
  return right;
}

Result<bool> Filler::Compare(int32_t number) {
  const StreamFile& wanted = file(number);
  const std::string path = folder_.PathOf(number);
  DFIN_TRY(const FileStamp stamp, StampFile(path));
  if (stamp.bytes != wanted.bytes) return false;
  DFIN_TRY(Digest digest, wanted.sha256.empty() ? Digest::GitSha1(wanted.bytes) : Digest::Sha256());
  DFIN_TRY(const DirectFile source, DirectFile::OpenBuffered(path));
  std::vector<std::byte> block(kHashBlock);
  for (uint64_t at = 0; at < wanted.bytes;) {
    if (options_.cancel.cancelled()) return Fail(ErrorCode::kCancelled, path, ": stopped");
    const size_t bytes = std::min<uint64_t>(block.size(), wanted.bytes - at);
    DFIN_TRY_VOID(ReadFully(source, at, MutBytes(block.data(), bytes)));
    DFIN_TRY_VOID(digest.Add(Bytes(block.data(), bytes)));
    at += bytes;
    Report();
  }
  DFIN_TRY(const std::string sum, digest.Finish());
  return sum == (wanted.sha256.empty() ? wanted.git_sha1 : wanted.sha256);
}

// Those that are not what was fetched; all when each is, since then what was fetched is wrong.
Status Filler::DoubtWrongRanges(int32_t number) {
  DFIN_TRY(const DirectFile source, DirectFile::OpenBuffered(folder_.PathOf(number)));
  const std::vector<PresenceEntry> ranges = folder_.Ranges(number);
  std::vector<FileRange> wrong;
  std::vector<std::byte> bytes;
  for (const PresenceEntry& entry : ranges) {
    bytes.resize(entry.range.bytes);
    DFIN_TRY_VOID(ReadFully(source, entry.range.offset, bytes));
    if (Hash64(Bytes(bytes)) != entry.hash) wrong.push_back(entry.range);
  }
  for (const PresenceEntry& entry : ranges)
    if (wrong.empty() || std::find(wrong.begin(), wrong.end(), entry.range) != wrong.end()) folder_.Doubt(entry.range);
  return {};
}

Status Filler::CheckAndPublish(int32_t number) {
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    const StreamLayout& layout = layouts_[static_cast<size_t>(number)];
    if (folder_.Ranges(number).empty() || folder_.Ranges(number).front().range.offset != 0)
      DFIN_TRY_VOID(FetchHeader(number));
    const std::vector<Job> dense = Missing(layout.dense, PresenceKind::kDense, kDenseRangeBytes);
    DFIN_TRY_VOID(InParallel(dense.size(), [&](size_t i) { return Fetch(dense[i]); }));
    DFIN_TRY_VOID(FetchExpertsOf(number));
    DFIN_CHECK(folder_.IsWhole(number), "header, dense ranges and experts are the whole file");
    DFIN_TRY(const bool is_right, ChecksumIsRight(number));
    if (is_right) return folder_.Publish(number);
    DFIN_TRY_VOID(DoubtWrongRanges(number));
  }
  return Fail(ErrorCode::kCorrupt, folder_.PathOf(number),
              ": expected the checksum that the hub lists, got another, "
              "also after what was wrong was fetched again: the hub's list or the drive is at fault; nothing was given "
              "its final name");
}

Status Filler::All() {
  DFIN_TRY_VOID(ComparePublished());
  DFIN_TRY_VOID(ReadLayouts());
  std::vector<FileRange> ranges;
  for (const StreamLayout& layout : layouts_) {
    ranges.insert(ranges.end(), layout.dense.begin(), layout.dense.end());
    ranges.insert(ranges.end(), layout.experts.begin(), layout.experts.end());
  }
  bytes_done_ = 0;
  bytes_total_ = BytesOf(Missing(ranges, PresenceKind::kDense, kJoinBytes));
  if (options_.on_size) DFIN_TRY_VOID(options_.on_size(bytes_total_));
  for (int32_t i = 0; i < static_cast<int32_t>(files()); ++i)
    if (!folder_.published(i)) DFIN_TRY_VOID(CheckAndPublish(i));
  return folder_.Finish();
}

}  // namespace

Status FillDense(StreamFolder& folder, RemoteFiles& remote, const StreamFillOptions& options) {
  return Filler(folder, remote, options).Dense();
}

Status FillAll(StreamFolder& folder, RemoteFiles& remote, const StreamFillOptions& options) {
  return Filler(folder, remote, options).All();
}

}  // namespace deltafin
