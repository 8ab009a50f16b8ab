#include "checkpoint/expert_store.h"

#include <algorithm>
#include <cstring>

#include "base/float_types.h"

namespace deltafin {

ExpertStore::ExpertStore(const Checkpoint& checkpoint, IoScheduler& io, int expected_in_flight)
    : checkpoint_(checkpoint), io_(io), geometry_(checkpoint.spec()) {
  record_bytes_ = static_cast<uint64_t>(geometry_.record_bytes());
  for (int i = 0; i < checkpoint.shard_count(); ++i) alignment_ = std::max(alignment_, checkpoint.shard(i).alignment());
  slot_bytes_ = WidenedBytesAnywhere(record_bytes_, alignment_);
  free_.reserve(static_cast<size_t>(expected_in_flight));
  for (int i = 0; i < expected_in_flight; ++i) free_.push_back(&requests_.emplace_back());
}

ExpertStore::~ExpertStore() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return in_flight_ == 0; });
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
  request->retried = false;
  request->done = std::move(done);
  Read(request);
}

void ExpertStore::Read(Request* request) {
  const ExpertPlace& place = checkpoint_.Expert(request->key);
  // One captured pointer fits into std::function without an allocation.
  const ReadRequest bytes{&checkpoint_.shard(place.shard), place.offset, record_bytes_, request->slot};
  io_.Read(bytes, 0, request->priority, request->tag,
           [request](Status status) { request->store->Finish(request, std::move(status)); });
}

void ExpertStore::Cancel(IoTag tag) { io_.Cancel(tag); }

void ExpertStore::Finish(Request* request, Status status) {
  if (!status && status.error().code() == ErrorCode::kIo && !request->retried) {
    request->retried = true;
    retries_.fetch_add(1, std::memory_order_relaxed);
    return Read(request);
  }
  const ExpertKey key = request->key;
  const ExpertPlace& place = checkpoint_.Expert(key);
  const std::byte* record = request->slot + place.offset % checkpoint_.shard(place.shard).alignment();
  const Done done = std::move(request->done);
  {
    const std::lock_guard lock(mutex_);
    request->done = nullptr;
    free_.push_back(request);
  }
  if (status) {
    done(Check(key, record));
  } else {
    done(FailWith(std::move(status), Cat("layer ", key.layer, ", expert ", key.expert)));
  }
  // Last, and under the lock: the destructor waits for it.
  const std::lock_guard lock(mutex_);
  if (--in_flight_ == 0) idle_.notify_all();
}

Result<ExpertWeights> ExpertStore::Check(ExpertKey key, const std::byte* record) const {
  const ExpertPlace& place = checkpoint_.Expert(key);
  const ExpertWeights weights = ViewExpert(geometry_, place.layout, record);
  const std::optional<BadScale> bad = FindBadScale(weights);
  if (!bad) return weights;
  const int64_t groups = geometry_.cols(bad->matrix) / kMxfp4Group;
  const uint32_t scales_at = place.layout.scale_offset[static_cast<size_t>(bad->matrix)];
  const auto* row = reinterpret_cast<const uint8_t*>(record) + scales_at + bad->row * groups;
  const auto* byte = static_cast<const uint8_t*>(std::memchr(row, kE8M0NaN, static_cast<size_t>(groups)));
  const uint64_t offset = place.offset + static_cast<uint64_t>(byte - reinterpret_cast<const uint8_t*>(record));
  return Fail(ErrorCode::kCorrupt, "layer ", key.layer, ", expert ", key.expert, ", ", ToString(bad->matrix),
              ".weight_scale, row ", bad->row, ": ", checkpoint_.shard(place.shard).path(), ", byte ", offset,
              ": expected a scale from 0 to 254, got 255 (not a number): the file is damaged, download it again");
}

}  // namespace deltafin
