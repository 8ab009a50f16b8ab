#include "checkpoint/streamed_experts.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/integrity.h"

namespace deltafin {
namespace {

// Times that a range may come damaged, as far as that shows, before it is an error.
constexpr int kMostTries = 3;
// Adjacent experts that are fetched as one range: more would leave connections without work.
constexpr uint64_t kMostJoined = 4;

std::string RangeText(const FileRange& range) {
  return Cat("bytes ", range.offset, " to ", range.offset + range.bytes - 1);
}

}  // namespace

StreamedExperts::StreamedExperts(const Checkpoint& checkpoint, StreamFolder& folder, ExpertSource& disk,
                                 std::unique_ptr<RemoteFiles> remote, const StreamedExpertsOptions& options,
                                 const Clock& clock)
    : checkpoint_(checkpoint),
      folder_(folder),
      disk_(disk),
      remote_(std::move(remote)),
      options_(options),
      clock_(clock),
      places_(checkpoint, folder),
      most_joined_bytes_(
          std::max(disk.record_bytes(), std::min(options.join_bytes, kMostJoined * disk.record_bytes()))) {
  for (int i = 0; remote_ != nullptr && i < std::max(1, options.connections); ++i)
    threads_.emplace_back([this] { Work(); });
}

StreamedExperts::~StreamedExperts() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_fetching_.Cancel();
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  std::vector<Request*> left;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, download] : downloads_) left.insert(left.end(), download.waiting.begin(), download.waiting.end());
    downloads_.clear();
    queue_.clear();
  }
  for (Request* request : left) Conclude(request, Fail(ErrorCode::kCancelled, NameOf(request->key), ": stopped"));
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return in_flight_ == 0; });
}

StreamedExperts::Request* StreamedExperts::TakeRequest() {
  const std::lock_guard lock(mutex_);
  ++in_flight_;
  if (free_.empty()) {
    free_.reserve(requests_.size() + 1);
    return &requests_.emplace_back();
  }
  Request* request = free_.back();
  free_.pop_back();
  return request;
}

void StreamedExperts::Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) {
  Request* request = TakeRequest();
  {
    const std::lock_guard lock(mutex_);
    request->owner = this;
    request->key = key;
    request->slot = slot;
    request->priority = priority;
    request->tag = tag;
    request->fetched_again = request->expired = false;
    request->reading = true;  // before the folder is asked: from here on it does not give the expert up
    request->done = std::move(done);
  }
  if (IsThere(key)) return ReadFromDisk(request);
  const bool is_wanted = priority == IoPriority::kDemand || priority == IoPriority::kPrefetch;
  if (remote_ != nullptr && !is_wanted)
    return Conclude(request, Fail(ErrorCode::kUnavailable, NameOf(key), ": is not there yet"));
  if (Enqueue(request)) return;
  const FileRange range = *places_.Of(key);
  const StreamManifest& manifest = folder_.manifest();
  Conclude(request, Fail(ErrorCode::kIo, NameOf(key), ": ", folder_.PathOf(range.file), ", ", RangeText(range),
                         ": expected this expert in the folder, got --offline and an expert that was never fetched: "
                         "leave --offline out, or fetch everything with `deltafin setup --repo ",
                         manifest.repository, " --to ", folder_.folder(), "`"));
}

bool StreamedExperts::IsThere(ExpertKey key) const {
  const std::optional<FileRange> range = places_.Of(key);
  return !range || folder_.Has(*range);
}

void StreamedExperts::ReadFromDisk(Request* request) {
  // One captured pointer fits into std::function without an allocation.
  disk_.Fetch(request->key, request->slot, request->priority, request->tag,
              [request](Result<ExpertWeights> result) { request->owner->Arrived(request, std::move(result)); });
}

void StreamedExperts::Arrived(Request* request, Result<ExpertWeights> result) {
  if (request->expired) return Conclude(request, std::move(result));
  if (!result && result.error().code() == ErrorCode::kDeadline) {
    // The disk calls once more when the drive no longer writes to the slot.
    request->expired = true;
    request->done(std::move(result));
    return;
  }
  if (!result && result.error().code() == ErrorCode::kCorrupt && FetchAgain(request)) return;
  if (!result && result.error().code() == ErrorCode::kCorrupt) {
    const std::optional<FileRange> range = places_.Of(request->key);
    if (range && folder_.HashOf(*range)) {
      const char* why = remote_ == nullptr ? "leave --offline out and it is fetched again"
                                           : "it came right and is wrong on the drive: the drive damages data";
      result = Fail(ErrorCode::kCorrupt, NameOf(request->key), ": ", folder_.PathOf(range->file), ", ",
                    RangeText(*range), ": expected the bytes that were fetched, got others: ", why);
    }
  }
  Conclude(request, std::move(result));
}

bool StreamedExperts::FetchAgain(Request* request) {
  const std::optional<FileRange> range = places_.Of(request->key);
  if (remote_ == nullptr || request->fetched_again || !range || folder_.published(range->file)) return false;
  folder_.Doubt(*range);
  request->fetched_again = true;
  if (!Enqueue(request)) return false;
  const std::lock_guard lock(mutex_);
  ++counters_.fetched_again;
  return true;
}

bool StreamedExperts::Enqueue(Request* request) {
  const std::lock_guard lock(mutex_);
  if (remote_ == nullptr || stop_) return false;
  request->reading = false;
  request->priority = IoPriority::kDemand;
  auto [it, is_new] = downloads_.try_emplace(request->key);
  it->second.waiting.push_back(request);
  if (!is_new) return true;
  it->second.range = *places_.Of(request->key);
  queue_.push_back(request->key);
  ++counters_.waiting;
  wake_.notify_one();
  return true;
}

void StreamedExperts::Conclude(Request* request, Result<ExpertWeights> result) {
  const Done done = std::move(request->done);
  {
    const std::lock_guard lock(mutex_);
    request->done = nullptr;
    request->reading = false;
    free_.push_back(request);
  }
  done(std::move(result));
  // Last, and under the lock: the destructor waits for it.
  const std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();
}

bool StreamedExperts::IsBeingRead(const FileRange& range) {
  const std::lock_guard lock(mutex_);
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const Request& request) { return request.reading && places_.Of(request.key) == range; });
}

void StreamedExperts::Cancel(IoTag tag) {
  std::vector<Request*> cancelled;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = downloads_.begin(); it != downloads_.end();) {
      std::vector<Request*>& waiting = it->second.waiting;
      const auto ours = std::partition(waiting.begin(), waiting.end(), [&](Request* r) { return r->tag != tag; });
      cancelled.insert(cancelled.end(), ours, waiting.end());
      waiting.erase(ours, waiting.end());
      if (!waiting.empty() || it->second.running) {
        ++it;
        continue;
      }
      queue_.erase(std::find(queue_.begin(), queue_.end(), it->first));
      --counters_.waiting;
      it = downloads_.erase(it);
    }
  }
  for (Request* request : cancelled) Conclude(request, Fail(ErrorCode::kCancelled, NameOf(request->key), ": stopped"));
  disk_.Cancel(tag);
}

void StreamedExperts::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::vector<ExpertKey> group = TakeGroup();
    CountBusy(1);
    lock.unlock();
    const Status fetched = FetchGroup(group);
    lock.lock();
    CountBusy(-1);
    std::vector<Request*> waiting;
    for (const ExpertKey key : group) {
      Download& download = downloads_.at(key);
      waiting.insert(waiting.end(), download.waiting.begin(), download.waiting.end());
      if (fetched) counters_.bytes += download.range.bytes;
      downloads_.erase(key);
    }
    for (Request* request : waiting) request->reading = fetched.has_value();
    counters_.waiting -= group.size();
    if (fetched) counters_.experts += group.size();
    lock.unlock();
    for (Request* request : waiting) {
      if (fetched)
        ReadFromDisk(request);
      else
        Conclude(request, Failure(Error(fetched.error())));
    }
    lock.lock();
  }
}

// The first that waits, and others that lie beside it in the same file.
std::vector<ExpertKey> StreamedExperts::TakeGroup() {
  std::vector<ExpertKey> group = {queue_.front()};
  queue_.pop_front();
  FileRange all = downloads_.at(group.front()).range;
  for (bool grew = true; grew;) {
    grew = false;
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      const FileRange& range = downloads_.at(*it).range;
      const bool before = range.offset + range.bytes == all.offset, after = all.offset + all.bytes == range.offset;
      if (range.file != all.file || !(before || after) || all.bytes + range.bytes > most_joined_bytes_) continue;
      group.insert(before ? group.begin() : group.end(), *it);
      if (before) all.offset = range.offset;
      all.bytes += range.bytes;
      queue_.erase(it);
      grew = true;
      break;
    }
  }
  for (const ExpertKey key : group) downloads_.at(key).running = true;
  return group;
}

Status StreamedExperts::FetchGroup(const std::vector<ExpertKey>& group) {
  FileRange all = *places_.Of(group.front());
  const std::vector<uint64_t> sizes(group.size(), all.bytes);
  all.bytes *= group.size();
  const StreamFile& file = folder_.manifest().files[static_cast<size_t>(all.file)];
  std::vector<std::byte> bytes(all.bytes);
  Status status;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    status = remote_->Read(file, all.offset, bytes, stop_fetching_.token());
    if (status) status = CheckRecords(group, file, bytes);
    if (status || status.error().code() != ErrorCode::kCorrupt) break;
  }
  if (!status) return FailWith(std::move(status), NameOf(group.front()));
  status = folder_.Put({PresenceKind::kExpert, all.file, all.offset, bytes, sizes},
                       [this](const FileRange& range) { return IsBeingRead(range); });
  if (!status && status.error().code() == ErrorCode::kUnavailable)
    status = Fail(ErrorCode::kUnavailable, status.error().message(), "; --keep-experts bounds what is kept");
  if (!status) return FailWith(std::move(status), NameOf(group.front()));
  return {};
}

Status StreamedExperts::CheckRecords(const std::vector<ExpertKey>& group, const StreamFile& file, Bytes bytes) const {
  const ExpertGeometry geometry(checkpoint_.spec());
  const std::byte* record = bytes.data();
  for (const ExpertKey key : group) {
    const std::optional<BadScale> bad = FindBadScale(ViewExpert(geometry, checkpoint_.Expert(key).layout, record));
    if (bad)
      return Fail(ErrorCode::kCorrupt, "expert ", key.expert, ", ", ToString(bad->matrix), ".weight_scale, row ",
                  bad->row, ", fetched from ", file.name,
                  ": expected a scale from 0 to 254, got 255 (not a number): the hub sends damaged data");
    record += geometry.record_bytes();
  }
  return {};
}

void StreamedExperts::CountBusy(int change) {
  if (busy_ == 0) busy_since_ns_ = clock_.NowNs();
  busy_ += change;
  if (busy_ == 0) counters_.seconds += SecondsBetween(busy_since_ns_, clock_.NowNs());
}

uint64_t StreamedExperts::absent() const {
  const ModelSpec& spec = checkpoint_.spec();
  const auto layers = static_cast<int32_t>(spec.layers.size());
  uint64_t count = 0;
  for (int32_t layer = layers - static_cast<int32_t>(spec.num_moe_layers); layer < layers; ++layer)
    for (int32_t expert = 0; expert < spec.num_experts; ++expert) count += IsThere({layer, expert}) ? 0 : 1;
  return count;
}

FetchCounters StreamedExperts::counters() const {
  const std::lock_guard lock(mutex_);
  FetchCounters now = counters_;
  now.streamed = true;
  now.twice = remote_ != nullptr && remote_->reads_twice();
  if (busy_ > 0) now.seconds += SecondsBetween(busy_since_ns_, clock_.NowNs());
  return now;
}

std::string StreamedExperts::NameOf(ExpertKey key) const { return Cat("layer ", key.layer, ", expert ", key.expert); }

}  // namespace deltafin
