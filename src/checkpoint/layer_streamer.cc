#include "checkpoint/layer_streamer.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

namespace deltafin {
namespace {

constexpr std::chrono::milliseconds kCancelPoll{20};  // a CancelToken cannot wake anybody

std::string UnitName(const DenseSource& source, int unit) {
  const bool is_head = unit == source.layers();
  return is_head ? "streaming the head's weights" : Cat("streaming the dense weights of layer ", unit);
}

}  // namespace

uint64_t LayerStreamer::BufferBytes(const std::vector<UnitLayout>& layouts, const std::vector<int>& units) {
  uint64_t bytes = 0;
  for (const int unit : units) bytes = std::max(bytes, layouts[static_cast<size_t>(unit)].buffer_bytes);
  return bytes;
}

Result<std::unique_ptr<LayerStreamer>> LayerStreamer::Create(const DenseSource& source, IoScheduler& io,
                                                             const std::vector<UnitLayout>& layouts,
                                                             std::vector<int> units, int buffers) {
  DFIN_CHECK(!units.empty() && buffers >= 2, "streaming needs units and two buffers");
  const uint64_t bytes = BufferBytes(layouts, units);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(bytes * static_cast<uint64_t>(buffers)));
  std::unique_ptr<LayerStreamer> streamer(new LayerStreamer(source, io, layouts, std::move(units), buffers));
  streamer->memory_ = std::make_shared<AlignedBuffer>(std::move(memory));
  for (size_t i = 0; i < streamer->buffers_.size(); ++i) {
    streamer->buffers_[i]->data = streamer->memory_->data() + i * bytes;
    streamer->buffers_[i]->reads.SetMemory(streamer->memory_);
    streamer->buffers_[i]->tag = io.NewTag();
  }
  streamer->ReadAhead(0);
  return streamer;
}

LayerStreamer::LayerStreamer(const DenseSource& source, IoScheduler& io, const std::vector<UnitLayout>& layouts,
                             std::vector<int> units, int buffers)
    : source_(source), io_(io), layouts_(layouts), units_(std::move(units)), checked_(layouts.size(), false) {
  for (int i = 0; i < buffers; ++i) buffers_.push_back(std::make_unique<Buffer>());
}

LayerStreamer::~LayerStreamer() {
  // What the device has begun comes into memory that the groups keep.
  for (const auto& buffer : buffers_) io_.Cancel(buffer->tag);
}

LayerStreamer::Buffer* LayerStreamer::Find(int unit) {
  for (const auto& buffer : buffers_)
    if (buffer->unit == unit) return buffer.get();
  return nullptr;
}

size_t LayerStreamer::Position(int unit) const {
  const auto it = std::lower_bound(units_.begin(), units_.end(), unit);
  DFIN_CHECK(it != units_.end() && *it == unit, "the unit is not streamed");
  return static_cast<size_t>(it - units_.begin());
}

size_t LayerStreamer::Distance(size_t position, int unit) const {
  if (unit == unexpected_) return units_.size();
  const auto steps = [&](int to) { return (Position(to) + units_.size() - position) % units_.size(); };
  const size_t distance = steps(unit);
  return unexpected_ >= 0 && steps(unexpected_) < distance ? distance - 1 : distance;
}

void LayerStreamer::Start(Buffer& buffer, int unit, IoPriority priority) {
  buffer.unit = unit;
  buffer.settled = false;
  StartReads(source_, layouts_[static_cast<size_t>(unit)], buffer.data, io_, priority, buffer.tag, buffer.reads);
}

void LayerStreamer::Empty(Buffer& buffer) {
  // What the reads came to does not matter: nobody wants the unit any more.
  static_cast<void>(buffer.reads.Wait());
  buffer.unit = -1;
  buffer.settled = false;
}

LayerStreamer::Buffer& LayerStreamer::BestToClaim(size_t position) const {
  Buffer* best = nullptr;
  std::tuple<bool, bool, size_t> best_rank;
  for (const auto& buffer : buffers_) {
    if (buffer->pins > 0) continue;
    // Rather lose a unit that has arrived than wait; among equals the one that comes up last.
    const size_t distance = buffer->unit < 0 ? units_.size() + 1 : Distance(position, buffer->unit);
    const std::tuple rank(buffer->reads.idle(), !buffer->reads.hangs(), distance);
    if (best != nullptr && rank <= best_rank) continue;
    best = buffer.get();
    best_rank = rank;
  }
  DFIN_CHECK(best != nullptr, "more units are pinned than there are buffers");
  return *best;
}

Result<LayerStreamer::Buffer*> LayerStreamer::Claim(size_t position, CancelToken cancel) {
  for (;;) {
    Buffer& best = BestToClaim(position);
    if (best.reads.idle()) {
      Empty(best);
      return &best;
    }
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "waiting for a buffer: stopped");
    if (best.reads.hangs())
      return Fail(ErrorCode::kDeadline, "waiting for a buffer: every one is held by a read that hangs");
    // Without a unit it stays the best one until its reads have ended, whoever asks.
    best.unit = -1;
    best.settled = false;
    io_.Cancel(best.tag);
    best.reads.WaitFor(kCancelPoll);
  }
}

void LayerStreamer::ReadAhead(size_t position) {
  const size_t expected = units_.size() - (unexpected_ >= 0 ? 1 : 0);
  const size_t window = std::min(buffers_.size(), expected);
  for (size_t i = 0; i < units_.size(); ++i) {
    const int unit = units_[(position + i) % units_.size()];
    if (Distance(position, unit) >= window || Find(unit) != nullptr) continue;
    // A buffer whose unit comes up later than the window, and which nothing is being read into.
    const auto it = std::find_if(buffers_.begin(), buffers_.end(), [&](const std::unique_ptr<Buffer>& buffer) {
      if (buffer->pins > 0 || !buffer->reads.idle()) return false;
      return buffer->unit < 0 || Distance(position, buffer->unit) >= window;
    });
    if (it == buffers_.end()) return;
    Empty(**it);
    Start(**it, unit, IoPriority::kPrefetch);
  }
}

// Sets `buffer` to the one with the unit's bytes.
Status LayerStreamer::Read(int unit, Buffer*& buffer, CancelToken cancel) {
  const bool was_started = buffer != nullptr;
  if (!was_started) {
    DFIN_TRY(buffer, Claim(Position(unit), cancel));
    Start(*buffer, unit, IoPriority::kDemand);
  } else {
    io_.Raise(buffer->tag, IoPriority::kDemand);  // read ahead so far
  }
  // A cancelled wait leaves the unit on its way; a failed one leaves nothing.
  if (!buffer->reads.WaitUnless(cancel)) return Fail(ErrorCode::kCancelled, "stopped");
  Status status = buffer->reads.Wait();
  if (!status && was_started) {
    // It may have failed long before anybody wanted it: what counts is whether it can be read now.
    if (!buffer->reads.idle()) {
      buffer->unit = -1;
      DFIN_TRY(buffer, Claim(Position(unit), cancel));
    }
    Start(*buffer, unit, IoPriority::kDemand);
    if (!buffer->reads.WaitUnless(cancel)) return Fail(ErrorCode::kCancelled, "stopped");
    status = buffer->reads.Wait();
  }
  if (!status) buffer->unit = -1;
  return status;
}

Result<const std::byte*> LayerStreamer::Pin(int unit, CancelToken cancel) {
  Buffer* buffer = Find(unit);
  if (buffer == nullptr || !buffer->settled) {
    const int64_t from = clock_.NowNs();
    Status status = Read(unit, buffer, cancel);
    wait_seconds_ += SecondsBetween(from, clock_.NowNs());
    if (!status) return FailWith(std::move(status), UnitName(source_, unit));
    const UnitLayout& layout = layouts_[static_cast<size_t>(unit)];
    Settle(layout, buffer->data);
    if (Status sound = CheckUnit(source_, layout, buffer->data, !checked_[static_cast<size_t>(unit)]); !sound) {
      buffer->unit = -1;
      return FailWith(std::move(sound), UnitName(source_, unit));
    }
    checked_[static_cast<size_t>(unit)] = true;
    buffer->settled = true;
    streamed_bytes_ += layout.payload_bytes;
  }
  ++buffer->pins;
  next_ = Position(unit) + 1;
  ReadAhead(next_);
  return static_cast<const std::byte*>(buffer->data);
}

void LayerStreamer::Expect(int unit, bool expected) {
  if (!std::binary_search(units_.begin(), units_.end(), unit)) return;
  if (!expected && unexpected_ < 0) unexpected_ = unit;
  if (!expected || unexpected_ != unit) return;
  unexpected_ = -1;
  ReadAhead(next_);
}

void LayerStreamer::Unpin(int unit) {
  Buffer* buffer = Find(unit);
  DFIN_CHECK(buffer != nullptr && buffer->pins > 0, "the unit is not pinned");
  if (--buffer->pins == 0) ReadAhead(Position(unit) + 1);
}

}  // namespace deltafin
