#include "checkpoint/expert_store.h"

#include <array>
#include <cstring>

#include "base/float_types.h"

namespace deltafin {
namespace {

const Mxfp4View& ViewOf(const ExpertWeights& weights, ExpertMatrix m) {
  return m == ExpertMatrix::kW1 ? weights.w1 : m == ExpertMatrix::kW2 ? weights.w2 : weights.w3;
}

std::string NameOf(ExpertKey key) { return Cat("layer ", key.layer, ", expert ", key.expert); }

}  // namespace

ExpertStore::ExpertStore(std::unique_ptr<const ExpertLocator> locator, IoScheduler& io,
                         const ExpertStoreOptions& options)
    : locator_(std::move(locator)), io_(io), verify_reads_(options.verify_reads && locator_->has_checksums()) {
  free_.reserve(static_cast<size_t>(options.expected_in_flight));
  for (int i = 0; i < options.expected_in_flight; ++i) free_.push_back(&requests_.emplace_back());
}

ExpertStore::~ExpertStore() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return in_flight_ == 0; });
}

ExpertStoreCounters ExpertStore::counters() const {
  const auto value = [](const std::atomic<uint64_t>& count) { return count.load(std::memory_order_relaxed); };
  return {value(verified_), value(mismatched_), value(from_copies_)};
}

ExpertStore::Request* ExpertStore::TakeRequest() {
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

void ExpertStore::Fetch(ExpertKey key, std::byte* slot, IoPriority priority, IoTag tag, Done done) {
  Request* request = TakeRequest();
  request->store = this;
  request->key = key;
  request->slot = slot;
  request->priority = priority;
  request->tag = tag;
  request->attempt = 0;
  request->expired = false;
  request->rest_is_right = false;
  request->done = std::move(done);
  std::array<ReadPart, IoScheduler::kMaxParts> parts;
  const size_t count = locator_->Parts(key, slot, parts);
  Start(request, std::span(parts).first(count));
}

void ExpertStore::Start(Request* request, std::span<const ReadPart> parts) {
  // One captured pointer fits into std::function without an allocation.
  io_.Read(parts, request->priority, request->tag,
           [request](Status status) { request->store->Finish(request, std::move(status)); });
}

void ExpertStore::Finish(Request* request, Status status) {
  if (request->expired)
    return Conclude(request, Fail(ErrorCode::kCancelled, NameOf(request->key), ": the drive let go of the slot"));
  if (!status && status.error().code() == ErrorCode::kDeadline) {
    // The scheduler calls once more when the drive no longer writes to the slot.
    request->expired = true;
    request->done(FailWith(std::move(status), NameOf(request->key)));
    return;
  }
  if (!status && status.error().code() == ErrorCode::kCancelled)
    return Conclude(request, Failure(std::move(status.error())));
  if (!status) {
    // A drive fails while second copies are kept out.
    const bool may_go_on = request->attempt % 2 == 1 && status.error().code() == ErrorCode::kIo;
    if (may_go_on && TryAgain(request, true)) return;
    return Conclude(request, FailWith(std::move(status), NameOf(request->key)));
  }
  Wrong wrong;
  Result<ExpertWeights> result = Examine(*request, wrong);
  if (!result) {
    request->wrong = std::move(wrong.ranges);
    request->rest_is_right = wrong.rest_is_right;
    if (TryAgain(request, false)) return;
  }
  Conclude(request, std::move(result));
}

Result<ExpertWeights> ExpertStore::Examine(const Request& request, Wrong& wrong) {
  const ExpertKey key = request.key;
  if (!verify_reads_ || locator_->ChecksumIsRight(key, request.slot)) {
    if (verify_reads_) verified_.fetch_add(1, std::memory_order_relaxed);
    const ExpertWeights weights = locator_->Open(key, request.slot);
    wrong = FindWrongScale(key, weights);
    if (wrong.ranges.empty()) {
      if (request.attempt > 0 && request.attempt % 2 == 0) from_copies_.fetch_add(1, std::memory_order_relaxed);
      return weights;
    }
  } else {
    wrong.ranges = locator_->WrongRanges(key, request.slot);
    wrong.rest_is_right = true;
    std::string where;
    for (const RecordRange& range : wrong.ranges) where += (where.empty() ? "" : "; ") + locator_->Where(key, range);
    wrong.what = ": " + where +
                 Cat(": expected the bytes that were packed, got others (the checksum differs",
                     request.attempt >= 2 ? ", in the second copy too" : "",
                     "): the drive returns damaged data: run `deltafin verify --repair`");
  }
  mismatched_.fetch_add(1, std::memory_order_relaxed);
  return Fail(ErrorCode::kCorrupt, NameOf(key), wrong.what);
}

// What a try brings must not depend on which copy the scheduler takes, or the next one would avoid the wrong one.
// Drives that are degraded keep their second way.
void ExpertStore::KeepToOneCopy(std::span<ReadPart> parts) const {
  const std::vector<DriveCounters> drives = io_.drive_counters();
  for (ReadPart& part : parts)
    if (drives[static_cast<size_t>(part.drive)].health == DriveHealth::kGood) part.copy = {};
}

bool ExpertStore::TryAgain(Request* request, bool any_copy) {
  std::array<ReadPart, IoScheduler::kMaxParts> parts;
  size_t count = 0;
  const bool copies = ++request->attempt % 2 == 0;
  if (request->attempt == kMostTries) return false;
  if (request->rest_is_right)
    count = locator_->PartsOfRanges(request->key, request->slot, request->wrong, copies, parts);
  else if (copies)
    count = request->attempt == 2 ? locator_->PartsAvoiding(request->key, request->slot, request->wrong, parts) : 0;
  else
    count = request->attempt == 1 ? locator_->Parts(request->key, request->slot, parts) : 0;
  if (count == 0) return false;
  if (!any_copy) KeepToOneCopy(std::span(parts).first(count));
  request->priority = IoPriority::kDemand;  // rare, and somebody may wait for it by now
  Start(request, std::span(parts).first(count));
  return true;
}

void ExpertStore::Conclude(Request* request, Result<ExpertWeights> result) {
  const Done done = std::move(request->done);
  {
    const std::lock_guard lock(mutex_);
    request->done = nullptr;
    free_.push_back(request);
  }
  done(std::move(result));
  // Last, and under the lock: the destructor waits for it.
  const std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();
}

ExpertStore::Wrong ExpertStore::FindWrongScale(ExpertKey key, const ExpertWeights& weights) const {
  const std::optional<BadScale> bad = FindBadScale(weights);
  if (!bad) return {};
  const Mxfp4View& view = ViewOf(weights, bad->matrix);
  const int64_t groups = view.cols / kMxfp4Group;
  const uint8_t* row = view.scale + bad->row * groups;
  const auto* byte = static_cast<const uint8_t*>(std::memchr(row, kE8M0NaN, static_cast<size_t>(groups)));
  const uint64_t at = locator_->ScalesAt(key, bad->matrix) + static_cast<uint64_t>(byte - view.scale);
  const RecordRange range{at, at + 1};
  return {{range},
          Cat(", ", ToString(bad->matrix), ".weight_scale, row ", bad->row, ": ", locator_->Where(key, range),
              ": expected a scale from 0 to 254, got 255 (not a number): the file is damaged, download it again or run "
              "`deltafin verify --repair`")};
}

}  // namespace deltafin
