#include "io/drive_read_run.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace deltafin {
namespace {

struct Slot {
  size_t stream = 0;
  std::byte* memory = nullptr;  // its place in the first round of the memory
  uint64_t round = 0;
  uint64_t bytes = 0;
  int64_t submitted_ns = 0;
};

struct Completion {
  int64_t at_ns = 0;
  int64_t latency_ns = 0;
  uint64_t bytes = 0;
};

double LatencyQuantile(const std::vector<int64_t>& sorted, double q) {
  if (sorted.empty()) return 0;
  const size_t at = static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5);
  return static_cast<double>(sorted[at]) * 1e-9;
}

class Run {
 public:
  Run(IoEngine& engine, std::span<const ReadStream> streams, const CellLimits& limits, const Clock& clock)
      : engine_(engine),
        streams_(streams),
        limits_(limits),
        clock_(clock),
        submitted_bytes_(streams.size()),
        completions_(streams.size()) {}

  Status Read(MutBytes memory, CancelToken cancel) {
    start_ns_ = clock_.NowNs();
    PlaceSlots(memory);
    for (size_t i = 0; i < slots_.size(); ++i) Submit(i);
    while (in_flight_ > 0) {
      std::array<IoCompletion, 32> done;
      const size_t count = engine_.Wait(done, kLookUpNs);
      const int64_t now = clock_.NowNs();
      for (size_t i = 0; i < count; ++i) Complete(done[i], now);
      if (cancel.cancelled() && status_) status_ = Fail(ErrorCode::kCancelled, "interrupted");
      if (!stopped() && (!status_ || SecondsBetween(start_ns_, now) >= limits_.seconds)) stop_ns_ = now;
      // Slots are filled again only now: the order of completions in a batch says nothing.
      for (size_t i = 0; i < count; ++i) Submit(static_cast<size_t>(done[i].id));
    }
    return std::move(status_);
  }

  StreamRate RateOf(size_t stream) const {
    StreamRate rate;
    std::vector<int64_t> latencies;
    for (const Completion& c : completions_[stream]) {
      ++rate.reads;
      rate.bytes += c.bytes;
      latencies.push_back(c.latency_ns);
    }
    std::sort(latencies.begin(), latencies.end());
    rate.latency_p50_seconds = LatencyQuantile(latencies, 0.5);
    rate.latency_p99_seconds = LatencyQuantile(latencies, 0.99);
    rate.bytes_per_second = SteadyRate(stream);
    return rate;
  }

 private:
  // How often a run looks whether it was cancelled while a drive keeps it waiting.
  static constexpr int64_t kLookUpNs = 50'000'000;

  bool stopped() const { return stop_ns_ != 0; }

  void PlaceSlots(MutBytes memory) {
    uint64_t at = 0;
    for (size_t s = 0; s < streams_.size(); ++s) {
      const DriveSetting& setting = streams_[s].setting;
      for (int i = 0; i < setting.depth; ++i, at += setting.block_bytes)
        slots_.push_back({s, memory.data() + at, 0, 0});
    }
    DFIN_CHECK(at <= memory.size(), "the memory holds all reads in flight");
    DFIN_CHECK(slots_.size() <= static_cast<size_t>(engine_.depth()), "the engine is deep enough");
  }

  void Submit(size_t index) {
    if (stopped()) return;
    Slot& slot = slots_[index];
    const ReadStream& stream = streams_[slot.stream];
    const std::optional<UnreadSpans::Span> span = stream.spans->Next(stream.setting.block_bytes);
    if (!span || submitted_bytes_[slot.stream] + span->bytes > limits_.bytes) {
      stop_ns_ = std::max<int64_t>(1, clock_.NowNs());
      return;
    }
    submitted_bytes_[slot.stream] += span->bytes;
    slot.bytes = span->bytes;
    slot.submitted_ns = clock_.NowNs();
    ++in_flight_;
    std::byte* destination = slot.memory + (slot.round++ % rounds_) * round_bytes_;
    engine_.Submit(index, {&stream.files->file(span->file, stream.direct), span->offset, span->bytes, destination});
  }

  void Complete(IoCompletion& done, int64_t now) {
    const Slot& slot = slots_[static_cast<size_t>(done.id)];
    --in_flight_;
    if (!done.status) {
      if (status_) status_ = std::move(done.status);
      return;
    }
    // Of several drives only what came while all of them were read counts.
    if (stopped() && streams_.size() > 1) return;
    completions_[slot.stream].push_back({now, now - slot.submitted_ns, slot.bytes});
  }

  // From the moment when as many reads ended as are in flight: exact both for a drive that answers one read after the
  // other and for one that answers all of a queue at once.
  double SteadyRate(size_t stream) const {
    const std::vector<Completion>& all = completions_[stream];
    const size_t depth = static_cast<size_t>(streams_[stream].setting.depth);
    const auto sum = [&](size_t from) {
      return std::accumulate(all.begin() + static_cast<std::ptrdiff_t>(from), all.end(), 0.0,
                             [](double total, const Completion& c) { return total + static_cast<double>(c.bytes); });
    };
    if (all.size() > depth && all.back().at_ns > all[depth - 1].at_ns)
      return sum(depth) / SecondsBetween(all[depth - 1].at_ns, all.back().at_ns);
    if (all.empty() || all.back().at_ns <= start_ns_) return 0;
    return sum(0) / SecondsBetween(start_ns_, all.back().at_ns);
  }

  IoEngine& engine_;
  const std::span<const ReadStream> streams_;
  const CellLimits limits_;
  const Clock& clock_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> submitted_bytes_;
  std::vector<std::vector<Completion>> completions_;
  int in_flight_ = 0;
  uint64_t round_bytes_ = 0, rounds_ = 1;
  int64_t start_ns_ = 0;
  int64_t stop_ns_ = 0;  // when the last read was submitted; 0 = still going
  Status status_;
};

}  // namespace

Result<std::vector<StreamRate>> RunReads(IoEngine& engine, std::span<const ReadStream> streams,
                                         const CellLimits& limits, MutBytes memory, const Clock& clock,
                                         CancelToken cancel) {
  Run run(engine, streams, limits, clock);
  DFIN_TRY_VOID(run.Read(memory, cancel));
  std::vector<StreamRate> rates;
  for (size_t i = 0; i < streams.size(); ++i) rates.push_back(run.RateOf(i));
  return rates;
}

}  // namespace deltafin
