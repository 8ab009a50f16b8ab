#include "simulate/own_measurements.h"

#include <cmath>

#include "simulate/planner.h"
#include "simulate/recorded_traces.h"
#include "simulate/runs.h"
#include "synth/shapes.h"

namespace deltafin::simulate {
namespace {

// The drives of bench/drive_ladder and what its processor can do on two threads (docs/PERFORMANCE.md, "Kernels").
constexpr double kProportion[] = {13.6, 7.1, 7.1, 5.4};
constexpr double kLatency = 80e-6;
constexpr double kReading = 54.0e9, kMultiplying = 431e9;
constexpr int64_t kLadderLayers = 7, kLadderExperts = 28;
constexpr int64_t kLearningTokens = 12, kWindowTokens = 8, kPlainTokens = 3;
// Sizes of memory_ladder: one drive.
constexpr double kMemoryRate = 400e6;
constexpr int kSeeds = 8;

Result<ModelShape> LadderShape() {
  DFIN_TRY(ModelSpec spec, MakeSynthSpec({.name = "nano", .layers = kLadderLayers, .experts = kLadderExperts}));
  DFIN_TRY(const ModelSpec release, MakeSynthSpec({.name = "k3"}));
  spec.routed_expert_hidden_size = release.routed_expert_hidden_size;
  spec.moe_intermediate_size = release.moe_intermediate_size;
  spec.num_experts_per_token = release.num_experts_per_token;
  DFIN_TRY(spec, CheckSynthSpec(spec));
  return ModelShape::From(spec);
}

Machine LadderMachine(double sum, size_t drives) {
  double all = 0;
  for (const double part : kProportion) all += part;
  Machine machine{.drives = {},
                  .hub_rates = {},
                  .ram_bytes = 0,
                  .memory_bytes_per_second = kReading,
                  .flops_per_second = kMultiplying};
  for (size_t d = 0; d < drives; ++d)
    machine.drives.push_back({.bytes_per_second = sum * kProportion[d] / all, .first_byte_seconds = kLatency});
  return machine;
}

class Comparison {
 public:
  Comparison(ModelShape ladder, ExpertTrace ladder_trace, uint64_t seed)
      : shape_(std::move(ladder)), trace_(std::move(ladder_trace)), seed_(seed) {}

  Status Run() {
    const double plain[2][4] = {{0.081, 0.123, 0.163, 0.192}, {0.161, 0.244, 0.328, 0.391}};
    const double ahead[2][4] = {{0.117, 0.177, 0.236, 0.279}, {0.233, 0.355, 0.478, 0.572}};
    for (size_t s = 0; s < 2; ++s) {
      const double sum = s == 0 ? 332e6 : 664e6;
      for (size_t drives = 1; drives <= 4; ++drives) {
        const std::string name = Cat(std::lround(sum / 1e6), " MB/s, ", drives, drives == 1 ? " drive" : " drives");
        DFIN_TRY_VOID(Decode("ladder", name, plain[s][drives - 1], LadderMachine(sum, drives), 1, false));
        DFIN_TRY_VOID(
            Decode("ladder", name + ", read-ahead", ahead[s][drives - 1], LadderMachine(sum, drives), 3, true));
      }
    }
    DFIN_TRY_VOID(Memory());
    DFIN_TRY_VOID(Slice("k3-slice in 7.0 GB, 24 tokens after 8", 7.0e9, 8192, {}, 789));
    DFIN_TRY_VOID(Slice("k3-slice in 5.4 GB, --context 1024 --chunk 16", 5.4e9, 1024, 16, 4270));
    DFIN_TRY_VOID(Prompt(332e6, 15.45));
    return Prompt(664e6, 14.2);
  }

  std::vector<TargetRow> rows;

 private:
  Result<std::unique_ptr<Simulation>> Start(const Machine& machine, int64_t slots, bool ahead) {
    DFIN_TRY(routing_, ReplayRouting(shape_, trace_));
    EngineModel engine = OwnEngine(/*packed=*/false);
    if (!ahead) engine.ahead_layers = 0;
    return std::make_unique<Simulation>(
        Setup{.shape = shape_, .machine = machine, .engine = engine, .layout = {}, .slots = slots, .seed = seed_},
        *routing_);
  }

  Status Decode(const char* id, const std::string& what, double target, const Machine& machine, int64_t floors,
                bool ahead) {
    DFIN_TRY(const std::unique_ptr<Simulation> simulation, Start(machine, floors * shape_.experts_per_token, ahead));
    RunDecode(*simulation, ahead ? kLearningTokens : 1, {}, 1);
    const DecodeRun run = RunDecode(*simulation, ahead ? kWindowTokens : kPlainTokens, {}, 1);
    rows.push_back({.id = id,
                    .what = what,
                    .unit = "tokens/s",
                    .low = target,
                    .high = target,
                    .simulated = run.tokens_per_second()});
    return {};
  }

  // bench/memory_ladder: 20 tokens, of which the first is the prompt's.
  Status Memory() {
    struct Measured {
      int64_t slots;
      bool ahead;
      double rate, megabytes;
    };
    constexpr Measured kMeasured[] = {{16, false, 0.2318, 1684.5}, {16, true, 0.2355, 1684.5},
                                      {32, false, 0.2765, 1377.9}, {32, true, 0.2500, 1478.7},
                                      {48, false, 0.3547, 1087.0}, {48, true, 0.3429, 1145.1},
                                      {96, false, 0.8548, 462.7},  {96, true, 0.8537, 464.8},
                                      {140, false, 2.6542, 137.6}, {140, true, 2.6429, 137.6}};
    for (const Measured& m : kMeasured) {
      Machine machine = LadderMachine(kMemoryRate, 1);
      machine.drives[0].bytes_per_second = kMemoryRate;
      DFIN_TRY(const std::unique_ptr<Simulation> simulation, Start(machine, m.slots, m.ahead));
      simulation->Step(1);
      const DecodeRun run = RunDecode(*simulation, 19, {}, 1);
      const std::string name = Cat("1 drive of 400 MB/s, ", m.slots, " slots", m.ahead ? ", read-ahead" : "");
      rows.push_back({.id = "memory",
                      .what = name,
                      .unit = "tokens/s",
                      .low = m.rate,
                      .high = m.rate,
                      .simulated = run.tokens_per_second()});
      rows.push_back({.id = "memory",
                      .what = name,
                      .unit = "MB/token",
                      .low = m.megabytes,
                      .high = m.megabytes,
                      .simulated = run.bytes_per_token() / 1e6});
    }
    return {};
  }

  // tools/run-k3-slice: bytes over all new tokens, the prompt and the load of what stays included. Its disk had no rate
  // that could be described, so times are not compared. The split of the memory is the planner's.
  Status Slice(const char* what, double budget, int64_t context, std::optional<int64_t> chunk, double target) {
    DFIN_TRY(const ModelSpec spec, MakeSynthSpec({.name = "k3-slice"}));
    DFIN_TRY(ExpertTrace trace, ExpertTrace::Parse(kSliceTrace, "k3-slice's trace"));
    PlanRequest request;
    request.shape = ModelShape::From(spec);
    request.machine = LadderMachine(1e9, 1);
    request.machine.ram_bytes = static_cast<uint64_t>(budget / 0.9);
    request.packed = false;
    request.context = context;
    request.chunk = chunk;
    DFIN_TRY(const MemorySplit split, SplitMemory(request));
    DFIN_TRY(const std::unique_ptr<Routing> routing, ReplayRouting(request.shape, std::move(trace)));
    Simulation simulation({.shape = request.shape,
                           .machine = request.machine,
                           .engine = OwnEngine(false),
                           .layout = {},
                           .slots = split.slots,
                           .resident_units = split.resident_units,
                           .seed = seed_},
                          *routing);
    simulation.Step(8);
    RunDecode(simulation, 23, {}, 1);
    const Totals& t = simulation.totals();
    const double loaded = request.shape.dense_bytes() * split.resident_dense;
    rows.push_back({.id = "memory",
                    .what = what,
                    .unit = "MB/token",
                    .low = target,
                    .high = target,
                    .simulated = (t.expert_bytes + t.dense_bytes + loaded) / 24 / 1e6});
    return {};
  }

  // 512 rows want all experts of all layers.
  Status Prompt(double sum, double target) {
    constexpr int64_t kRows = 512;
    const auto all = MakeRouting(shape_, {.spread = 1, .keep = 0, .recent = 0, .recent_tokens = 1, .growth = 1}, 1);
    Simulation simulation({.shape = shape_,
                           .machine = LadderMachine(sum, 4),
                           .engine = OwnEngine(false),
                           .layout = {},
                           .slots = 3 * shape_.experts_per_token},
                          *all);
    const Totals prompt = RunPrompt(simulation, OwnEngine(false), kRows, kRows);
    rows.push_back({.id = "prompt",
                    .what = Cat("512 tokens, ", std::lround(sum / 1e6), " MB/s, 4 drives"),
                    .unit = "s",
                    .low = target,
                    .high = target,
                    .simulated = prompt.seconds});
    return {};
  }

  const ModelShape shape_;
  const ExpertTrace trace_;
  const uint64_t seed_;
  std::unique_ptr<Routing> routing_;
};

}  // namespace

Result<std::vector<TargetRow>> CompareOwnMeasurements(uint64_t seed) {
  DFIN_TRY(const ModelShape shape, LadderShape());
  DFIN_TRY(const ExpertTrace trace, ExpertTrace::Parse(kLadderTrace, "the drive ladder's trace"));
  return OverSeeds(seed, kSeeds, [&](uint64_t s) -> Result<std::vector<TargetRow>> {
    Comparison comparison(shape, trace, s);
    DFIN_TRY_VOID(comparison.Run());
    return std::move(comparison.rows);
  });
}

}  // namespace deltafin::simulate
