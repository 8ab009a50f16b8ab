#include "support/fake_expert_source.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace deltafin::test {
namespace {

ExpertGeometry Geometry(const FakeExpertOptions& options) {
  ModelSpec spec;
  spec.routed_expert_hidden_size = options.hidden;
  spec.moe_intermediate_size = options.intermediate;
  return ExpertGeometry(spec);
}

const std::byte* FirstByte(const ExpertWeights& weights) {
  return reinterpret_cast<const std::byte*>(weights.w1.packed);
}

}  // namespace

FakeExpertSource::FakeExpertSource(const FakeExpertOptions& options)
    : options_(options), geometry_(Geometry(options)), random_(options.seed) {
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Serve(); });
}

FakeExpertSource::~FakeExpertSource() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    held_ = false;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void FakeExpertSource::Hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeExpertSource::Release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeExpertSource::Fail(ExpertKey key, const Error& error, int times) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < times; ++i) keys_[key].failures.push_back(error);
}

void FakeExpertSource::SetFailureProbability(double probability) {
  const std::lock_guard lock(mutex_);
  failure_probability_ = probability;
}

std::vector<std::byte> FakeExpertSource::Record(ExpertKey key) const {
  std::vector<std::byte> record(record_bytes());
  uint64_t state = std::hash<ExpertKey>()(key) + 1;
  for (std::byte& byte : record) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>((state >> 56) % 255);  // never the scale that is not a number
  }
  return record;
}

size_t FakeExpertSource::Offset(ExpertKey key) const {
  return static_cast<size_t>(key.layer * 97 + key.expert * 31) % static_cast<size_t>(slot_alignment());
}

ExpertWeights FakeExpertSource::View(const std::byte* record) const {
  ExpertRecordLayout layout;
  uint32_t offset = 0;
  for (const ExpertMatrix m : {ExpertMatrix::kW1, ExpertMatrix::kW2, ExpertMatrix::kW3}) {
    layout.packed_offset[static_cast<size_t>(m)] = offset;
    offset += static_cast<uint32_t>(geometry_.packed_bytes(m));
    layout.scale_offset[static_cast<size_t>(m)] = offset;
    offset += static_cast<uint32_t>(geometry_.scale_bytes(m));
  }
  return ViewExpert(geometry_, layout, record);
}

bool FakeExpertSource::Holds(const ExpertWeights& weights, ExpertKey key) const {
  const std::vector<std::byte> record = Record(key);
  const ExpertWeights expected = View(record.data());
  const auto same = [](const Mxfp4View& a, const Mxfp4View& b) {
    const auto packed = static_cast<size_t>(b.rows * b.cols / 2);
    const auto scales = static_cast<size_t>(b.rows * b.cols / kMxfp4Group);
    return a.rows == b.rows && a.cols == b.cols && std::memcmp(a.packed, b.packed, packed) == 0 &&
           std::memcmp(a.scale, b.scale, scales) == 0;
  };
  return same(weights.w1, expected.w1) && same(weights.w2, expected.w2) && same(weights.w3, expected.w3);
}

void FakeExpertSource::Pinned(const ExpertWeights& weights) {
  const std::lock_guard lock(mutex_);
  pinned_.push_back(FirstByte(weights));
}

void FakeExpertSource::Unpinned(const ExpertWeights& weights) {
  const std::lock_guard lock(mutex_);
  pinned_.erase(std::find(pinned_.begin(), pinned_.end(), FirstByte(weights)));
}

int FakeExpertSource::fetches(ExpertKey key) const {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(key);
  return found == keys_.end() ? 0 : found->second.fetches;
}

IoPriority FakeExpertSource::priority(ExpertKey key) const {
  const std::lock_guard lock(mutex_);
  return keys_.at(key).priority;
}

int FakeExpertSource::fetches() const {
  const std::lock_guard lock(mutex_);
  return fetches_;
}

int FakeExpertSource::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

int FakeExpertSource::most_at_once_per_key() const {
  const std::lock_guard lock(mutex_);
  return most_at_once_;
}

int FakeExpertSource::writes_into_pinned() const {
  const std::lock_guard lock(mutex_);
  return writes_into_pinned_;
}

void FakeExpertSource::WaitUntilFetched(int fetches) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return fetches_ >= fetches; });
}

void FakeExpertSource::WaitUntilIdle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return requests_.empty() && serving_ == 0; });
}

void FakeExpertSource::Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) {
  const std::lock_guard lock(mutex_);
  for (const std::byte* pinned : pinned_) {
    if (pinned >= slot && pinned < slot + slot_bytes()) ++writes_into_pinned_;
  }
  PerKey& counts = keys_[key];
  ++fetches_;
  ++counts.fetches;
  counts.priority = priority;
  most_at_once_ = std::max(most_at_once_, ++counts.at_once);
  requests_.push_back({key, slot, tag, std::move(done), false, false});
  Start();
  changed_.notify_all();
}

void FakeExpertSource::EndHungReads() {
  std::vector<Request> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(hung_);
  }
  for (Request& request : ended) {
    std::memset(request.slot, 0xEE, slot_bytes());
    request.done(deltafin::Fail(ErrorCode::kCancelled, "the drive let go"));
  }
}

void FakeExpertSource::Cancel(IoTag tag) {
  const std::lock_guard lock(mutex_);
  for (Request& request : requests_) {
    if (request.tag == tag && !request.started) request.cancelled = true;
  }
  changed_.notify_all();
}

void FakeExpertSource::Raise(IoTag tag, IoPriority priority) {
  const std::lock_guard lock(mutex_);
  for (const Request& request : requests_) {
    if (request.tag == tag) keys_[request.key].priority = priority;
  }
}

// Starts queued fetches, oldest first, while there is room.
void FakeExpertSource::Start() {
  for (Request& request : requests_) {
    if (started_ >= options_.max_started) return;
    if (request.started || request.cancelled) continue;
    request.started = true;
    ++started_;
  }
}

// Takes a random one of those that may end.
bool FakeExpertSource::TakeOne(Request* request) {
  const auto may_end = [this](const Request& r) { return !held_ && (r.cancelled || r.started); };
  const auto candidates = std::count_if(requests_.begin(), requests_.end(), may_end);
  if (candidates == 0) return false;
  auto skip = static_cast<std::ptrdiff_t>(random_() % static_cast<uint64_t>(candidates));
  const auto found =
      std::find_if(requests_.begin(), requests_.end(), [&](const Request& r) { return may_end(r) && skip-- == 0; });
  *request = std::move(*found);
  requests_.erase(found);
  return true;
}

void FakeExpertSource::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Request request;
    changed_.wait(lock, [&] { return stop_ || TakeOne(&request); });
    if (request.done == nullptr) return;
    ++serving_;
    const auto delay_us = random_() % static_cast<uint64_t>(options_.max_delay_us + 1);
    const bool unlucky = static_cast<double>(random_() >> 11) * 0x1.0p-53 < failure_probability_;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    Result<ExpertWeights> outcome = Outcome(request, unlucky);
    lock.lock();
    --keys_[request.key].at_once;
    if (request.started) --started_;
    Start();
    lock.unlock();
    const bool hangs = !outcome && outcome.error().code() == ErrorCode::kDeadline;
    if (hangs) {
      const std::lock_guard again(mutex_);
      hung_.push_back(request);
    }
    request.done(std::move(outcome));
    lock.lock();
    --serving_;
    changed_.notify_all();
  }
}

Result<ExpertWeights> FakeExpertSource::Outcome(const Request& request, bool unlucky) {
  if (request.cancelled) {
    const std::lock_guard lock(mutex_);
    ++cancelled_;
    return deltafin::Fail(ErrorCode::kCancelled, "cancelled before it started");
  }
  std::byte* destination = request.slot + Offset(request.key);
  const std::vector<std::byte> record = Record(request.key);
  // Half a record is there when a read fails.
  std::memcpy(destination, record.data(), record.size() / 2);
  {
    const std::lock_guard lock(mutex_);
    std::vector<Error>& failures = keys_[request.key].failures;
    if (!failures.empty()) {
      Error error = std::move(failures.back());
      failures.pop_back();
      return Failure(std::move(error).WithContext(Cat("layer ", request.key.layer, ", expert ", request.key.expert)));
    }
  }
  if (unlucky) return deltafin::Fail(ErrorCode::kIo, "drive gone");
  std::memcpy(destination, record.data(), record.size());
  return View(destination);
}

}  // namespace deltafin::test
