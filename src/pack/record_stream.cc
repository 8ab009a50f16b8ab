#include "pack/record_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{50};  // a CancelToken cannot wake anybody

}  // namespace

Result<std::unique_ptr<RecordStream>> RecordStream::Create(IoScheduler& io, size_t records, size_t buffers,
                                                           uint64_t buffer_bytes, Parts parts) {
  std::unique_ptr<RecordStream> stream(new RecordStream(io, records, std::move(parts)));
  buffers = std::max<size_t>(1, std::min(buffers, records));
  DFIN_TRY(stream->memory_, AlignedBuffer::Create(buffers * buffer_bytes));
  stream->tag_ = io.NewTag();
  for (size_t i = 0; i < buffers; ++i) stream->slots_.emplace_back().buffer = stream->memory_.data() + i * buffer_bytes;
  for (Slot& slot : stream->slots_) stream->Start(slot);
  return stream;
}

RecordStream::~RecordStream() {
  io_.Cancel(tag_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.owed == 0; }); });
}

void RecordStream::Start(Slot& slot) {
  if (next_ == records_) return;
  slot.index = next_++;
  ReadPart parts[IoScheduler::kMaxParts];
  const size_t count = parts_(slot.index, slot.buffer, parts);
  {
    const std::lock_guard lock(mutex_);
    slot.status = Status();
    slot.arrived = count == 0;
    slot.owed = count == 0 ? 0 : 1;
    in_order_.push_back(&slot);
  }
  if (count > 0)
    io_.Read(std::span<const ReadPart>(parts, count), IoPriority::kBackground, tag_,
             [this, &slot](Status status) { Finish(slot, std::move(status)); });
}

void RecordStream::Finish(Slot& slot, Status status) {
  const std::lock_guard lock(mutex_);
  // After kDeadline a second call says that the drive no longer writes into the buffer.
  const bool hung = !status && status.error().code() == ErrorCode::kDeadline;
  if (!slot.arrived) slot.status = std::move(status);
  slot.arrived = true;
  if (!hung) slot.owed = 0;
  changed_.notify_all();
}

Result<std::optional<RecordStream::Item>> RecordStream::Next(CancelToken cancel) {
  std::unique_lock lock(mutex_);
  if (in_order_.empty()) {
    if (next_ == records_) return std::optional<Item>();
    return Fail(ErrorCode::kIo, "reading: every buffer waits for a drive that does not answer");
  }
  Slot* slot = in_order_.front();
  while (!changed_.wait_for(lock, kCancelPoll, [&] { return slot->arrived; }))
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "stopped");
  if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "stopped");
  in_order_.pop_front();
  given_.push_back(slot);
  Item item{slot->index, slot->buffer, slot->status, slot->owed > 0};
  return std::optional<Item>(std::move(item));
}

void RecordStream::Recycle(const Item& item) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(given_.begin(), given_.end(), [&](const Slot* s) { return s->buffer == item.buffer; });
    if (it == given_.end()) return;
    slot = *it;
    given_.erase(it);
    if (slot->owed > 0) return;
  }
  Start(*slot);
}

}  // namespace deltafin
