#include "checkpoint/tensor_store.h"

#include <algorithm>
#include <chrono>

#include "checkpoint/embedding_reader.h"
#include "checkpoint/layer_streamer.h"
#include "checkpoint/unit_layout.h"
#include "spec/tensor_table.h"

namespace deltafin {
namespace {

// How often a load looks at its cancel token and reports progress.
constexpr std::chrono::milliseconds kPoll{50};

size_t LayerCount(const Checkpoint& checkpoint) { return checkpoint.spec().layers.size(); }

std::vector<UnitLayout> LayOutUnits(const Checkpoint& checkpoint) {
  std::vector<UnitLayout> layouts;
  for (int l = 0; l < static_cast<int>(LayerCount(checkpoint)); ++l)
    layouts.push_back(LayOutUnit(checkpoint, checkpoint.DenseNames(l), LayerTensorName(l, "").size()));
  layouts.push_back(LayOutUnit(checkpoint, checkpoint.DenseNames(-1), 0, kEmbedTokens));
  return layouts;
}

UnitLayout LayOutEmbedding(const Checkpoint& checkpoint) {
  const std::vector<std::string>& globals = checkpoint.DenseNames(-1);
  const auto it = std::find(globals.begin(), globals.end(), kEmbedTokens);
  DFIN_CHECK(it != globals.end(), "every spec has an embedding table");
  return LayOutUnit(checkpoint, std::span(&*it, 1), 0);
}

// Units that `plan` keeps (or streams).
std::vector<int> UnitsWhere(const ResidencyPlan& plan, bool resident) {
  std::vector<int> units;
  for (size_t u = 0; u < plan.resident.size(); ++u)
    if (plan.resident[u] == resident) units.push_back(static_cast<int>(u));
  return units;
}

}  // namespace

struct TensorStore::State {
  State(const Checkpoint& checkpoint, IoScheduler& io)
      : checkpoint(checkpoint),
        io(io),
        load_tag(io.NewTag()),
        layouts(LayOutUnits(checkpoint)),
        embedding_layout(LayOutEmbedding(checkpoint)),
        unit_base(layouts.size(), nullptr),
        embedding(checkpoint, io) {}

  Status Load(const ResidencyPlan& plan, const Progress& progress, CancelToken cancel);
  Status WaitForLoad(ReadGroup& reads, uint64_t total, const Progress& progress, CancelToken cancel);

  const Checkpoint& checkpoint;
  IoScheduler& io;
  const IoTag load_tag;
  const std::vector<UnitLayout> layouts;  // [layers + 1]
  const UnitLayout embedding_layout;
  std::shared_ptr<AlignedBuffer> resident;  // all resident units, one after another
  std::vector<const std::byte*> unit_base;  // [layers + 1], null: streamed
  EmbeddingReader embedding;
  std::unique_ptr<LayerStreamer> streamer;  // null when everything is resident
};

Status TensorStore::State::Load(const ResidencyPlan& plan, const Progress& progress, CancelToken cancel) {
  struct Part {
    const UnitLayout* layout;
    std::byte* data;
  };
  const std::vector<int> units = UnitsWhere(plan, true);
  uint64_t bytes = plan.embedding_resident ? embedding_layout.buffer_bytes : 0, payload = 0;
  for (const int u : units) bytes += layouts[static_cast<size_t>(u)].buffer_bytes;
  if (bytes == 0) return {};
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(bytes));
  resident = std::make_shared<AlignedBuffer>(std::move(memory));

  std::vector<Part> parts;
  std::byte* at = resident->data();
  const auto add = [&](const UnitLayout& layout) {
    parts.push_back({&layout, at});
    payload += layout.payload_bytes;
    at += layout.buffer_bytes;
  };
  for (const int u : units) {
    unit_base[static_cast<size_t>(u)] = at;
    add(layouts[static_cast<size_t>(u)]);
  }
  if (plan.embedding_resident) add(embedding_layout);

  ReadGroup reads(resident);
  for (const Part& part : parts)
    StartReads(checkpoint, *part.layout, part.data, io, IoPriority::kDemand, load_tag, reads);
  DFIN_TRY_VOID(WaitForLoad(reads, payload, progress, cancel));
  for (const Part& part : parts) Settle(*part.layout, part.data);
  if (plan.embedding_resident) embedding.SetTable(parts.back().data + embedding_layout.tensors[0].at);
  return {};
}

Status TensorStore::State::WaitForLoad(ReadGroup& reads, uint64_t total, const Progress& progress, CancelToken cancel) {
  while (!reads.WaitFor(kPoll)) {
    if (progress) progress(reads.bytes_done(), total);
    // What the drives have begun comes into memory that nobody looks at.
    if (cancel.cancelled() || reads.failed()) io.Cancel(load_tag);
    if (cancel.cancelled()) return Fail(ErrorCode::kCancelled, "loading the dense weights: cancelled");
  }
  Status status = reads.Wait();
  if (!status) return FailWith(std::move(status), "loading the dense weights");
  if (progress) progress(total, total);
  return {};
}

std::vector<uint64_t> TensorStore::UnitBytes(const Checkpoint& checkpoint) {
  std::vector<uint64_t> bytes;
  for (const UnitLayout& layout : LayOutUnits(checkpoint)) bytes.push_back(layout.buffer_bytes);
  return bytes;
}

uint64_t TensorStore::EmbeddingBytes(const Checkpoint& checkpoint) { return LayOutEmbedding(checkpoint).buffer_bytes; }

Result<std::unique_ptr<TensorStore>> TensorStore::Create(const Checkpoint& checkpoint, IoScheduler& io,
                                                         const ResidencyPlan& plan, const Progress& progress,
                                                         CancelToken cancel) {
  DFIN_CHECK(plan.resident.size() == LayerCount(checkpoint) + 1, "a plan has one entry per layer and one for the head");
  auto state = std::make_unique<State>(checkpoint, io);
  const std::vector<int> streamed = UnitsWhere(plan, false);
  DFIN_CHECK(streamed.empty() ? plan.ring_buffers == 0 : plan.ring_buffers >= 2, "a plan that streams has two buffers");
  if (!streamed.empty()) {
    DFIN_TRY(state->streamer, LayerStreamer::Create(checkpoint, io, state->layouts, streamed, plan.ring_buffers));
  }
  DFIN_TRY_VOID(state->Load(plan, progress, cancel));
  return std::unique_ptr<TensorStore>(new TensorStore(std::move(state)));
}

TensorStore::TensorStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorStore::~TensorStore() = default;

Result<UnitPin> TensorStore::PinUnit(int unit, CancelToken cancel) {
  DFIN_CHECK(unit >= 0 && static_cast<size_t>(unit) < state_->layouts.size(), "no such unit");
  if (const std::byte* base = state_->unit_base[static_cast<size_t>(unit)]) return UnitPin(this, unit, base);
  DFIN_TRY(const std::byte* base, state_->streamer->Pin(unit, cancel));
  return UnitPin(this, unit, base);
}

bool TensorStore::IsResident(int unit) const { return state_->unit_base[static_cast<size_t>(unit)] != nullptr; }

void TensorStore::ExpectHead(bool expected) {
  if (state_->streamer) state_->streamer->Expect(static_cast<int>(state_->layouts.size()) - 1, expected);
}

Result<TensorView> TensorStore::EmbeddingRows(std::span<const TokenId> ids, CancelToken cancel) {
  return state_->embedding.Get(ids, cancel);
}

uint64_t TensorStore::streamed_bytes() const {
  return state_->embedding.read_bytes() + (state_->streamer ? state_->streamer->streamed_bytes() : 0);
}

double TensorStore::wait_seconds() const { return state_->streamer ? state_->streamer->wait_seconds() : 0; }

UnitPin::UnitPin(UnitPin&& other) noexcept { *this = std::move(other); }

UnitPin& UnitPin::operator=(UnitPin&& other) noexcept {
  std::swap(store_, other.store_);
  std::swap(unit_, other.unit_);
  std::swap(base_, other.base_);
  return *this;
}

UnitPin::~UnitPin() {
  if (store_ == nullptr) return;
  TensorStore::State& state = *store_->state_;
  if (state.unit_base[static_cast<size_t>(unit_)] == nullptr) state.streamer->Unpin(unit_);
}

TensorView UnitPin::Get(std::string_view name) const {
  DFIN_CHECK(store_ != nullptr, "the pin is empty");
  for (const UnitTensor& tensor : store_->state_->layouts[static_cast<size_t>(unit_)].tensors)
    if (tensor.name == name) return {base_ + tensor.at, tensor.dtype, tensor.shape};
  DFIN_CHECK(false, "the unit has no tensor of this name");
  return {};
}

}  // namespace deltafin
