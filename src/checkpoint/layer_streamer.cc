#include "checkpoint/layer_streamer.h"

#include <algorithm>

namespace deltafin {
namespace {

// Tags of expert reads count up from 1, so these never meet them.
constexpr IoTag kFirstTag = IoTag{1} << 63;

std::string UnitName(const Checkpoint& checkpoint, int unit) {
  const bool is_head = unit == static_cast<int>(checkpoint.spec().layers.size());
  return is_head ? "streaming the head's weights" : Cat("streaming the dense weights of layer ", unit);
}

}  // namespace

uint64_t LayerStreamer::BufferBytes(const std::vector<UnitLayout>& layouts, const std::vector<int>& units) {
  uint64_t bytes = 0;
  for (const int unit : units) bytes = std::max(bytes, layouts[static_cast<size_t>(unit)].buffer_bytes);
  return bytes;
}

Result<std::unique_ptr<LayerStreamer>> LayerStreamer::Create(const Checkpoint& checkpoint, IoScheduler& io,
                                                             const std::vector<UnitLayout>& layouts,
                                                             std::vector<int> units, int buffers) {
  DFIN_CHECK(!units.empty() && buffers >= 2, "streaming needs units and two buffers");
  const uint64_t bytes = BufferBytes(layouts, units);
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(bytes * static_cast<uint64_t>(buffers)));
  std::unique_ptr<LayerStreamer> streamer(new LayerStreamer(checkpoint, io, layouts, std::move(units), buffers));
  streamer->memory_ = std::move(memory);
  for (size_t i = 0; i < streamer->buffers_.size(); ++i) {
    streamer->buffers_[i]->data = streamer->memory_.data() + i * bytes;
    streamer->buffers_[i]->tag = kFirstTag + i;
  }
  streamer->ReadAhead(0);
  return streamer;
}

LayerStreamer::LayerStreamer(const Checkpoint& checkpoint, IoScheduler& io, const std::vector<UnitLayout>& layouts,
                             std::vector<int> units, int buffers)
    : checkpoint_(checkpoint), io_(io), layouts_(layouts), units_(std::move(units)) {
  for (int i = 0; i < buffers; ++i) buffers_.push_back(std::make_unique<Buffer>());
}

LayerStreamer::~LayerStreamer() {
  for (const auto& buffer : buffers_) io_.Cancel(buffer->tag);
  for (const auto& buffer : buffers_) Empty(*buffer);
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
  return (Position(unit) + units_.size() - position) % units_.size();
}

void LayerStreamer::Start(Buffer& buffer, int unit, IoPriority priority) {
  const UnitLayout& layout = layouts_[static_cast<size_t>(unit)];
  buffer.unit = unit;
  buffer.settled = false;
  streamed_bytes_ += layout.payload_bytes;
  StartReads(checkpoint_, layout, buffer.data, io_, priority, buffer.tag, buffer.reads);
}

void LayerStreamer::Empty(Buffer& buffer) {
  io_.Cancel(buffer.tag);
  // What the reads came to does not matter: nobody wants the unit any more.
  static_cast<void>(buffer.reads.Wait());
  buffer.unit = -1;
  buffer.settled = false;
}

LayerStreamer::Buffer& LayerStreamer::Claim(size_t position) {
  Buffer* best = nullptr;
  size_t best_distance = 0;
  for (const auto& buffer : buffers_) {
    if (buffer->pins > 0) continue;
    const size_t distance = buffer->unit < 0 ? units_.size() : Distance(position, buffer->unit);
    if (best == nullptr || distance > best_distance) {
      best = buffer.get();
      best_distance = distance;
    }
  }
  DFIN_CHECK(best != nullptr, "more units are pinned than there are buffers");
  Empty(*best);
  return *best;
}

void LayerStreamer::ReadAhead(size_t position) {
  const size_t window = std::min(buffers_.size(), units_.size());
  for (size_t i = 0; i < window; ++i) {
    const int unit = units_[(position + i) % units_.size()];
    if (Find(unit) != nullptr) continue;
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

Result<const std::byte*> LayerStreamer::Pin(int unit) {
  const size_t position = Position(unit);
  Buffer* buffer = Find(unit);
  const bool was_read_ahead = buffer != nullptr;
  if (!was_read_ahead) {
    buffer = &Claim(position);
    Start(*buffer, unit, IoPriority::kDemand);
  }
  if (!buffer->settled) {
    const int64_t from = clock_.NowNs();
    Status status = buffer->reads.Wait();
    if (!status && was_read_ahead) {
      // It may have failed long before anybody wanted it: what counts is whether it can be read now.
      Start(*buffer, unit, IoPriority::kDemand);
      status = buffer->reads.Wait();
    }
    wait_seconds_ += SecondsBetween(from, clock_.NowNs());
    if (!status) {
      buffer->unit = -1;
      return FailWith(std::move(status), UnitName(checkpoint_, unit));
    }
    Settle(layouts_[static_cast<size_t>(unit)], buffer->data);
    buffer->settled = true;
  }
  ++buffer->pins;
  ReadAhead(position + 1);
  return static_cast<const std::byte*>(buffer->data);
}

void LayerStreamer::Unpin(int unit) {
  Buffer* buffer = Find(unit);
  DFIN_CHECK(buffer != nullptr && buffer->pins > 0, "the unit is not pinned");
  if (--buffer->pins == 0) ReadAhead(Position(unit) + 1);
}

}  // namespace deltafin
