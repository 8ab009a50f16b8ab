#include "simulate/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/units.h"

namespace deltafin::simulate {
namespace {

constexpr int64_t kWarmTokens = 8, kMeasuredTokens = 40;
// As the engine plans (engine/memory_plan.cc): a tenth is left to the system; stacks, tables and the program.
constexpr uint64_t kLeftToSystemDivisor = 10, kReserveDivisor = 200;
constexpr uint64_t kReserveFixed = 128 * kMiB;
constexpr int64_t kMostChunk = 4096, kLeastChunk = 16;
// A chunk is not made shorter than this for the sake of dense weights.
constexpr int64_t kShortChunk = 512;
// Activations of a chunk may take such a part of the budget.
constexpr uint64_t kChunkDivisor = 16;
constexpr int kRingBuffers = 2;
constexpr double kPackedForm = 0.75;
constexpr int64_t kMostTokens = 1 << 24;
// Passes of a prompt that are simulated; those of longer ones take as long as these.
constexpr int64_t kMostPasses = 4;

uint64_t Whole(double bytes) { return static_cast<uint64_t>(std::ceil(bytes)); }

class Splitter {
 public:
  explicit Splitter(const PlanRequest& request) : r_(request) {}

  Result<MemorySplit> Split() {
    m_.budget = r_.machine.ram_bytes - r_.machine.ram_bytes / kLeftToSystemDivisor;
    m_.reserve = kReserveFixed + m_.budget / kReserveDivisor;
    m_.conversation = Whole(r_.shape.kept_state_bytes + r_.shape.bytes_per_context * static_cast<double>(r_.context));
    m_.packed = r_.packed;
    const uint64_t floor = Floor();
    if (m_.budget < floor) {
      const uint64_t ram = floor + floor / (kLeftToSystemDivisor - 1) + 1;
      return Fail(ErrorCode::kOutOfMemory, "memory of ", FormatBytes(r_.machine.ram_bytes), ": expected at least ",
                  FormatBytes(ram), " for this model and --context ", r_.context);
    }
    ChooseChunk();
    ChooseDense();
    DFIN_TRY_VOID(ChooseSlots());
    return m_;
  }

 private:
  double form() const { return m_.packed ? kPackedForm : 1; }
  uint64_t RowBytes(int64_t rows) const { return Whole(r_.shape.row_bytes * static_cast<double>(rows)); }
  uint64_t SlotBytes(int64_t slots) const { return Whole(r_.shape.record_bytes * static_cast<double>(slots)); }
  uint64_t Fixed() const { return m_.reserve + m_.conversation + SlotBytes(r_.shape.experts_per_token); }
  // Of so many units, the largest first, and of the buffers for the others.
  uint64_t DenseBytes(size_t resident) const {
    const std::vector<double> bytes = r_.shape.unit_bytes();
    const std::vector<size_t> order = r_.shape.units_by_size();
    double sum = resident < order.size() ? kRingBuffers * bytes[order[resident]] : 0;
    for (size_t i = 0; i < resident; ++i) sum += bytes[order[i]];
    return Whole(sum * form());
  }
  // The least that dense weights can do with.
  uint64_t LeastDense() const {
    uint64_t least = DenseBytes(0);
    for (size_t n = 1; n <= r_.shape.layers.size() + 1; ++n) least = std::min(least, DenseBytes(n));
    return least;
  }
  uint64_t Floor() const { return Fixed() + RowBytes(kLeastChunk) + LeastDense(); }

  void ChooseChunk() {
    const int64_t most = std::clamp(std::min(r_.context, r_.chunk.value_or(kMostChunk)), int64_t{1}, kMostChunk);
    m_.chunk = std::min(kLeastChunk, most);
    while (m_.chunk * 2 <= most && RowBytes(m_.chunk * 2) <= m_.budget / kChunkDivisor) m_.chunk *= 2;
    const uint64_t dense = Whole(r_.shape.dense_bytes() * form());
    while (m_.chunk > kShortChunk && !WithChunk(dense)) m_.chunk /= 2;
    while (m_.chunk > kLeastChunk && !WithChunk(LeastDense())) m_.chunk /= 2;
    m_.activations = RowBytes(m_.chunk);
  }
  bool WithChunk(uint64_t dense) const { return Fixed() + RowBytes(m_.chunk) + dense <= m_.budget; }

  // As many as there is room for; fewer may need more, when the next one is large.
  void ChooseDense() {
    const uint64_t others = Fixed() + m_.activations;
    const size_t units = r_.shape.layers.size() + 1;
    m_.resident_units = units;
    while (m_.resident_units > 0 && others + DenseBytes(m_.resident_units) > m_.budget) --m_.resident_units;
    m_.dense = DenseBytes(m_.resident_units);
    double resident = 0;
    const std::vector<double> bytes = r_.shape.unit_bytes();
    const std::vector<size_t> order = r_.shape.units_by_size();
    for (size_t i = 0; i < m_.resident_units; ++i) resident += bytes[order[i]];
    m_.resident_dense = m_.resident_units == units ? 1 : resident / r_.shape.dense_bytes();
  }

  Status ChooseSlots() {
    const uint64_t others = m_.reserve + m_.conversation + m_.activations + m_.dense;
    uint64_t room = m_.budget - std::min(m_.budget, others);
    if (r_.cache_bytes) {
      if (*r_.cache_bytes < SlotBytes(r_.shape.experts_per_token))
        return Fail(ErrorCode::kOutOfMemory, "--cache ", FormatBytes(*r_.cache_bytes), ": expected at least ",
                    FormatBytes(SlotBytes(r_.shape.experts_per_token)), ", the experts of one token in one layer");
      if (*r_.cache_bytes > room)
        return Fail(ErrorCode::kOutOfMemory, "--cache ", FormatBytes(*r_.cache_bytes), ": expected at most ",
                    FormatBytes(room), ", which the rest leaves of this memory");
      room = *r_.cache_bytes;
    }
    const int64_t all = r_.shape.expert_layers() * r_.shape.experts;
    m_.slots = std::min(all, static_cast<int64_t>(static_cast<double>(room) / r_.shape.record_bytes));
    m_.slots = std::max(m_.slots, r_.shape.experts_per_token);
    m_.experts = SlotBytes(m_.slots);
    return {};
  }

  const PlanRequest& r_;
  MemorySplit m_;
};

Status CheckRequest(const PlanRequest& r) {
  DFIN_TRY_VOID(CheckMachine(r.machine));
  if (r.context < 1 || r.context > kMostTokens)
    return Fail(ErrorCode::kInvalidArgument, "--context ", r.context, ": expected 1 to ", kMostTokens);
  if (r.prompt_tokens < 1 || r.prompt_tokens > r.context)
    return Fail(ErrorCode::kInvalidArgument, "--prompt-tokens ", r.prompt_tokens, ": expected 1 to ", r.context,
                ", the --context");
  if (r.chunk && (*r.chunk < 1 || *r.chunk > kMostChunk))
    return Fail(ErrorCode::kInvalidArgument, "--chunk ", *r.chunk, ": expected 1 to ", kMostChunk);
  if (!(r.draft_chance >= 0 && r.draft_chance < 1))
    return Fail(ErrorCode::kInvalidArgument, "--draft ", r.draft_chance,
                ": expected off, or a chance from 0 to below 1");
  return {};
}

Result<std::unique_ptr<Routing>> RoutingOf(const PlanRequest& request) {
  if (request.trace != nullptr) return ReplayRouting(request.shape, *request.trace);
  return MakeRouting(request.shape, K3Statistics(), request.seed);
}

std::string Gigabytes(double rate) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g GB/s", rate / 1e9);
  return text;
}

void SimulatePrompt(const PlanRequest& request, const EngineModel& engine, Simulation& simulation, PlanAnswer& answer) {
  const int64_t simulated = std::min(request.prompt_tokens, kMostPasses * answer.memory.chunk);
  answer.prompt = RunPrompt(simulation, engine, simulated, answer.memory.chunk);
  answer.seconds_first_token =
      answer.prompt.seconds * static_cast<double>(request.prompt_tokens) / static_cast<double>(simulated);
}

Result<PlanAnswer> SimulateRun(const PlanRequest& request, bool with_prompt = true) {
  PlanAnswer answer;
  DFIN_TRY(answer.memory, SplitMemory(request));
  const EngineModel engine = OwnEngine(answer.memory.packed);
  DFIN_TRY(const std::unique_ptr<Routing> routing, RoutingOf(request));
  Simulation simulation({.shape = request.shape,
                         .machine = request.machine,
                         .engine = engine,
                         .layout = request.layout,
                         .slots = answer.memory.slots,
                         .policy = request.policy,
                         .resident_units = answer.memory.resident_units,
                         .seed = request.seed},
                        *routing);
  simulation.Warm();
  if (with_prompt) SimulatePrompt(request, engine, simulation, answer);
  RunDecode(simulation, kWarmTokens, {}, request.seed);
  DraftHabits drafts;
  if (request.draft_chance > 0) drafts = BestHabits(request.draft_chance, K3Statistics().growth, request.most_drafts);
  answer.drafts = drafts.mean_drafts();
  answer.decode = RunDecode(simulation, kMeasuredTokens, drafts, request.seed);
  answer.tokens_per_second = answer.decode.tokens_per_second();
  answer.step = simulation.last_step();
  return answer;
}

// What would bring the most if there were twice as much of it.
std::string LimitOf(const PlanRequest& request) {
  std::string limit;
  double best = 0;
  const auto look = [&](const char* name, auto change) {
    PlanRequest more = request;
    change(more);
    const Result<PlanAnswer> answer = SimulateRun(more, /*with_prompt=*/false);
    if (!answer || answer->tokens_per_second <= best) return;
    best = answer->tokens_per_second;
    limit = name;
  };
  look("drives", [](PlanRequest& r) {
    for (Drive& drive : r.machine.drives) drive.bytes_per_second = std::min(kMostRate, 2 * drive.bytes_per_second);
    for (double& rate : r.machine.hub_rates) rate = std::min(kMostRate, 2 * rate);
  });
  look("memory size", [](PlanRequest& r) {
    r.machine.ram_bytes *= 2;
    if (r.cache_bytes) *r.cache_bytes *= 2;
  });
  look("memory bandwidth", [](PlanRequest& r) {
    r.machine.memory_bytes_per_second = std::min(kMostRate, 2 * r.machine.memory_bytes_per_second);
  });
  look("arithmetic",
       [](PlanRequest& r) { r.machine.flops_per_second = std::min(kMostFlops, 2 * r.machine.flops_per_second); });
  return limit;
}

class Trials {
 public:
  Trials(const PlanRequest& request, const PlanAnswer& answer) : request_(request), answer_(answer) {}

  std::vector<Alternative> Run() {
    Drives();
    Memory();
    if (request_.machine.drives.size() > 1)
      for (const LayoutKind kind : {LayoutKind::kStriped, LayoutKind::kMirrored, LayoutKind::kShards})
        if (kind != request_.layout.kind)
          Try(std::string(ToString(kind)), [&](PlanRequest& r) { r.layout = {.kind = kind}; });
    if (answer_.memory.packed)
      Try("dense weights as released (BF16)", [](PlanRequest& r) { r.packed = false; });
    else
      Try("dense weights in 12 bits", [](PlanRequest& r) { r.packed = true; });
    if (request_.draft_chance > 0)
      Try("no drafts", [](PlanRequest& r) { r.draft_chance = 0; });
    else
      Try("drafts, right with a chance of 0.8", [](PlanRequest& r) { r.draft_chance = 0.8; });
    return std::move(found_);
  }

 private:
  void Drives() {
    const Machine& machine = request_.machine;
    const double most = machine.drives[machine.fastest()].bytes_per_second;
    if (machine.drives.size() < kMostDrives)
      Try("one more drive of " + Gigabytes(most),
          [&](PlanRequest& r) { r.machine.drives.push_back({.bytes_per_second = most}); });
    if (machine.drives.size() == 1) return;
    size_t slowest = 0;
    for (size_t d = 0; d < machine.drives.size(); ++d)
      if (machine.drives[d].bytes_per_second < machine.drives[slowest].bytes_per_second) slowest = d;
    Try("without the drive of " + Gigabytes(machine.drives[slowest].bytes_per_second), [&](PlanRequest& r) {
      r.machine.drives.erase(r.machine.drives.begin() + static_cast<std::ptrdiff_t>(slowest));
    });
  }

  void Memory() {
    const uint64_t more = request_.machine.ram_bytes / 2;
    Try(FormatBytes(more) + " more memory", [&](PlanRequest& r) {
      r.machine.ram_bytes += more;
      r.cache_bytes.reset();
    });
    Try("memory of twice the bandwidth", [](PlanRequest& r) { r.machine.memory_bytes_per_second *= 2; });
    Try("twice the arithmetic", [](PlanRequest& r) { r.machine.flops_per_second *= 2; });
  }

  template <typename Change>
  void Try(std::string name, Change change) {
    PlanRequest request = request_;
    change(request);
    const Result<PlanAnswer> answer = SimulateRun(request);
    if (!answer) return;
    found_.push_back({.change = std::move(name),
                      .tokens_per_second = answer->tokens_per_second,
                      .seconds_first_token = answer->seconds_first_token,
                      .gain = answer->tokens_per_second / answer_.tokens_per_second - 1});
  }

  const PlanRequest& request_;
  const PlanAnswer& answer_;
  std::vector<Alternative> found_;
};

}  // namespace

Result<MemorySplit> SplitMemory(const PlanRequest& request) {
  DFIN_TRY_VOID(CheckRequest(request));
  return Splitter(request).Split();
}

Result<PlanAnswer> Plan(const PlanRequest& request) {
  DFIN_TRY(PlanAnswer answer, SimulateRun(request));
  answer.limited_by = LimitOf(request);
  return answer;
}

std::vector<Alternative> Alternatives(const PlanRequest& request, const PlanAnswer& answer) {
  return Trials(request, answer).Run();
}

std::vector<PlanAnswer> ByDrives(const PlanRequest& request) {
  std::vector<PlanAnswer> answers;
  for (size_t count = 1; count <= request.machine.drives.size(); ++count) {
    PlanRequest part = request;
    part.machine.drives.resize(count);
    Result<PlanAnswer> answer = SimulateRun(part);
    if (answer) answers.push_back(std::move(*answer));
  }
  return answers;
}

}  // namespace deltafin::simulate
