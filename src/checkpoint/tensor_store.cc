#include "checkpoint/tensor_store.h"

#include <algorithm>
#include <chrono>

#include "checkpoint/embedding_reader.h"
#include "checkpoint/layer_streamer.h"
#include "checkpoint/unit_layout.h"

namespace deltafin {
namespace {

// How often a load looks at its cancel token and reports progress.
constexpr std::chrono::milliseconds kPoll{50};

std::vector<UnitLayout> LayOutUnits(const DenseSource& source) {
  std::vector<UnitLayout> layouts;
  for (int32_t unit = 0; unit <= source.layers(); ++unit) layouts.push_back(LayOutDenseUnit(source, unit));
  return layouts;
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
  State(const DenseSource& source, IoScheduler& io)
      : source(source),
        io(io),
        load_tag(io.NewTag()),
        layouts(LayOutUnits(source)),
        embedding_layout(LayOutEmbedding(*source.checkpoint)),
        unit_base(layouts.size(), nullptr),
        embedding(*source.checkpoint, io) {}

  // Reads of a load that are on their way, a group for each part.
  struct Loading {
    uint64_t bytes_done() const {
      uint64_t sum = 0;
      for (const std::unique_ptr<ReadGroup>& group : groups) sum += group->bytes_done();
      return sum;
    }
    std::vector<std::unique_ptr<ReadGroup>> groups;
    uint64_t total = 0;
    const Progress& progress;
    CancelToken cancel;
  };

  Status Load(const ResidencyPlan& plan, const Progress& progress, CancelToken cancel);
  Status WaitForPart(const Loading& loading, size_t index);
  Status FailLoad(const Loading& loading);

  const DenseSource source;
  IoScheduler& io;
  const IoTag load_tag;
  const std::vector<UnitLayout> layouts;  // [layers + 1]
  const UnitLayout embedding_layout;
  std::shared_ptr<AlignedBuffer> resident;  // all resident units, one after another
  std::vector<const std::byte*> unit_base;  // [layers + 1], null: streamed
  EmbeddingReader embedding;
  std::unique_ptr<LayerStreamer> streamer;  // null when everything is resident
  uint64_t loaded_bytes = 0;
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

  // A group for each part: what has come is checked while the rest is on its way.
  Loading loading{{}, payload, progress, cancel};
  for (const Part& part : parts) {
    loading.groups.push_back(std::make_unique<ReadGroup>(resident));
    StartReads(source, *part.layout, part.data, io, IoPriority::kDemand, load_tag, *loading.groups.back());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    DFIN_TRY_VOID(WaitForPart(loading, i));
    Settle(*parts[i].layout, parts[i].data);
    Status sound = CheckUnit(source, *parts[i].layout, parts[i].data, true);
    if (!sound) {
      io.Cancel(load_tag);
      return FailWith(std::move(sound), "loading the dense weights");
    }
  }
  loaded_bytes = payload;
  if (progress) progress(payload, payload);
  if (plan.embedding_resident) embedding.SetTable(parts.back().data + embedding_layout.tensors[0].at);
  return {};
}

// Part `index`, or until another one fails.
Status TensorStore::State::WaitForPart(const Loading& loading, size_t index) {
  const auto failed = [](const std::unique_ptr<ReadGroup>& group) { return group->failed(); };
  for (bool arrived = false; !arrived;) {
    arrived = loading.groups[index]->WaitFor(kPoll);
    if (std::any_of(loading.groups.begin(), loading.groups.end(), failed)) return FailLoad(loading);
    if (!arrived && loading.progress) loading.progress(loading.bytes_done(), loading.total);
    if (loading.cancel.cancelled()) {
      io.Cancel(load_tag);
      return Fail(ErrorCode::kCancelled, "loading the dense weights: cancelled");
    }
  }
  return loading.groups[index]->Wait();
}

// Ends all reads; what the drives have begun comes into memory that nobody looks at.
Status TensorStore::State::FailLoad(const Loading& loading) {
  io.Cancel(load_tag);
  Status first;
  for (const std::unique_ptr<ReadGroup>& group : loading.groups) {
    while (!group->WaitFor(kPoll))
      if (loading.cancel.cancelled()) return Fail(ErrorCode::kCancelled, "loading the dense weights: cancelled");
    Status status = group->Wait();
    // Those that were cancelled are not the cause.
    if (!status && (first || first.error().code() == ErrorCode::kCancelled)) first = std::move(status);
  }
  DFIN_CHECK(!first, "called when a part has failed");
  return FailWith(std::move(first), "loading the dense weights");
}

std::vector<uint64_t> TensorStore::UnitBytes(const DenseSource& source) {
  std::vector<uint64_t> bytes;
  for (const UnitLayout& layout : LayOutUnits(source)) bytes.push_back(layout.buffer_bytes);
  return bytes;
}

uint64_t TensorStore::EmbeddingBytes(const Checkpoint& checkpoint) { return LayOutEmbedding(checkpoint).buffer_bytes; }

Result<std::unique_ptr<TensorStore>> TensorStore::Create(const DenseSource& source, IoScheduler& io,
                                                         const ResidencyPlan& plan, const Progress& progress,
                                                         CancelToken cancel) {
  DFIN_CHECK(plan.resident.size() == static_cast<size_t>(source.layers()) + 1,
             "a plan has one entry per layer and one for the head");
  auto state = std::make_unique<State>(source, io);
  const std::vector<int> streamed = UnitsWhere(plan, false);
  DFIN_CHECK(streamed.empty() ? plan.ring_buffers == 0 : plan.ring_buffers >= 2, "a plan that streams has two buffers");
  if (!streamed.empty()) {
    DFIN_TRY(state->streamer, LayerStreamer::Create(source, io, state->layouts, streamed, plan.ring_buffers));
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

uint64_t TensorStore::loaded_bytes() const { return state_->loaded_bytes; }

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
