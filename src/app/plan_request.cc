#include "app/plan_request.h"

#include <charconv>
#include <cmath>

#include "app/plan_machine.h"
#include "base/json.h"
#include "base/units.h"
#include "simulate/published_rig.h"
#include "synth/shapes.h"

namespace deltafin {
namespace {

using simulate::Machine;

// Where nothing was said: a desktop processor with two memory channels.
constexpr double kUsualBandwidth = 60e9, kUsualArithmetic = 1e12;
constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;

Result<double> ParseNumber(const std::string& text, const char* option, const char* expected) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return Fail(ErrorCode::kInvalidArgument, option, " ", text, ": expected ", expected);
  return value;
}

// "300GB/s" or "300GB".
Result<double> ParseBandwidth(std::string text) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  Result<uint64_t> size = ParseSize(text);
  if (!size) return FailWith(std::move(size), "--memory-bandwidth");
  return static_cast<double>(*size);
}

Result<Machine> DescribedMachine(const PlanOptions& o) {
  if (o.drives.empty() || o.ram.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "no machine: expected --this-machine, --reference, or --drives (GB/s, e.g. 7.1,5.4) with --ram SIZE");
  Machine machine;
  Result<std::vector<simulate::Drive>> drives = simulate::ParseDrives(o.drives);
  if (!drives) return FailWith(std::move(drives), "--drives");
  machine.drives = std::move(*drives);
  Result<uint64_t> ram = ParseSize(o.ram);
  if (!ram) return FailWith(std::move(ram), "--ram");
  if (*ram > static_cast<uint64_t>(simulate::kMostRate))
    return Fail(ErrorCode::kInvalidArgument, "--ram ", o.ram, ": expected at most 1 PB");
  machine.ram_bytes = *ram;
  return machine;
}

Status SetLimits(const PlanOptions& o, Machine& machine, std::vector<std::string>& assumptions) {
  if (!o.memory_bandwidth.empty()) {
    DFIN_TRY(machine.memory_bytes_per_second, ParseBandwidth(o.memory_bandwidth));
  } else if (machine.memory_bytes_per_second == 0) {
    machine.memory_bytes_per_second = kUsualBandwidth;
    assumptions.push_back("memory is read at " + FormatRate(kUsualBandwidth) + " (--memory-bandwidth says otherwise)");
  }
  if (!o.arithmetic.empty()) {
    DFIN_TRY(const double teraflops, ParseNumber(o.arithmetic, "--arithmetic", "TFLOP/s in float32, e.g. 1.5"));
    machine.flops_per_second = teraflops * 1e12;
  } else if (machine.flops_per_second == 0) {
    machine.flops_per_second = kUsualArithmetic;
    assumptions.push_back("the processor multiplies and adds at 1 TFLOP/s in float32 (--arithmetic says otherwise)");
  }
  if (!o.latency.empty()) {
    DFIN_TRY(const double milliseconds, ParseNumber(o.latency, "--latency", "milliseconds, e.g. 0.2"));
    for (simulate::Drive& drive : machine.drives) drive.first_byte_seconds = milliseconds / 1e3;
  }
  return {};
}

Result<Machine> MachineOf(const PlanOptions& o, std::vector<std::string>& assumptions) {
  if (static_cast<int>(o.this_machine) + static_cast<int>(o.reference) + static_cast<int>(!o.drives.empty()) > 1)
    return Fail(ErrorCode::kInvalidArgument, "--this-machine, --reference and --drives: give one of them");
  if ((o.this_machine || o.reference) && (!o.ram.empty() || !o.hubs.empty()))
    return Fail(ErrorCode::kInvalidArgument, "--ram and --hub describe a machine that --drives names: use --what-if");
  if (!o.state_dir.empty() && !o.this_machine)
    return Fail(ErrorCode::kInvalidArgument, "--state-dir: does nothing without --this-machine");
  Machine machine;
  if (o.this_machine) {
    DFIN_TRY(machine, MeasureThisMachine(o.state_dir, assumptions));
  } else if (o.reference) {
    machine = simulate::ReferenceRig(4);
    assumptions.push_back(
        "memory is read at 300 GB/s and the processor does 2 TFLOP/s in float32: neither was measured there");
    assumptions.push_back("macOS reads files as Linux does");
  } else {
    DFIN_TRY(machine, DescribedMachine(o));
  }
  for (const std::string& hub : o.hubs) {
    const Status added = simulate::AddHub(machine, hub);
    if (!added) return Fail(added.error().code(), "--hub: ", added.error().message());
  }
  DFIN_TRY_VOID(SetLimits(o, machine, assumptions));
  return machine;
}

Status ApplyChanges(const std::vector<std::string>& changes, PlanJob* job) {
  if (changes.empty()) return {};
  job->base = job->request.machine;
  for (const std::string& change : changes) {
    const Status changed = simulate::ApplyChange(job->request.machine, change);
    if (!changed) return Fail(changed.error().code(), "--what-if: ", changed.error().message());
  }
  return {};
}

// What every plan takes for granted, as the model of the engine has it.
void AddEngineAssumptions(const simulate::PlanRequest& r, std::vector<std::string>& assumptions) {
  const simulate::EngineModel engine = simulate::OwnEngine(r.packed);
  const auto percent = [](double part) { return std::lround(100 * part); };
  assumptions.push_back(
      Cat("kernels reach the share of the processor's limits that they reach on the developers' machine: ",
          percent(engine.dense_share), " % of memory bandwidth with dense weights, ", percent(engine.expert_share),
          " % with experts, ", percent(engine.arithmetic_share), " % of the arithmetic"));
  assumptions.push_back(Cat("drives deliver ", percent(engine.drive_share), " % of their rate while reads are queued"));
  assumptions.push_back(Cat("one layer ahead ", percent(engine.named), " % of a layer's experts are named, and ",
                            percent(1 - engine.right), " % of those read ahead are read in vain"));
  assumptions.push_back(r.packed ? "dense weights were written in 12 bits (pack --dense)"
                                 : "dense weights are read as released (BF16)");
  assumptions.push_back("the most used experts are in memory at the start, and nothing else uses drives or memory");
}

Status SetSwitches(const PlanOptions& o, simulate::PlanRequest& r) {
  DFIN_TRY(r.layout.kind, simulate::ParseLayout(o.layout));
  DFIN_TRY(r.policy, simulate::ParseCachePolicy(o.cache_policy));
  if (!o.cache.empty()) {
    Result<uint64_t> size = ParseSize(o.cache);
    if (!size) return FailWith(std::move(size), "--cache");
    r.cache_bytes = *size;
  }
  if (o.dense != "packed" && o.dense != "bf16")
    return Fail(ErrorCode::kInvalidArgument, "--dense ", o.dense, ": expected packed or bf16");
  r.packed = o.dense == "packed";
  if (o.draft != "off") {
    DFIN_TRY(r.draft_chance,
             ParseNumber(o.draft, "--draft", "off, or the chance that a drafted token is right, e.g. 0.8"));
  }
  r.seed = o.seed;
  r.chunk = o.chunk;
  return {};
}

// Unless they were given: 512 and 8192, or what the model allows.
Status SetLengths(const PlanOptions& o, int64_t limit, simulate::PlanRequest& r) {
  r.context = o.context.value_or(std::min(r.context, limit));
  if (r.context > limit)
    return Fail(ErrorCode::kInvalidArgument, "--context ", r.context, ": expected at most ", limit,
                ", the model's max_position_embeddings");
  r.prompt_tokens = o.prompt_tokens.value_or(std::min(r.prompt_tokens, r.context));
  return {};
}

}  // namespace

Result<ModelSpec> PlannedModel(const std::string& folder) {
  if (folder.empty()) return MakeSynthSpec({.name = "k3"});
  const std::string path = folder + "/config.json";
  DFIN_TRY(const std::string text, ReadWholeFile(path, kMostConfigBytes));
  return ModelSpec::FromConfigText(text, path);
}

Result<PlanJob> MakePlanJob(const PlanOptions& o) {
  PlanJob job;
  DFIN_TRY(const ModelSpec spec, PlannedModel(o.model));
  simulate::PlanRequest& r = job.request;
  r.shape = simulate::ModelShape::From(spec);
  DFIN_TRY(r.machine, MachineOf(o, job.assumptions));
  DFIN_TRY_VOID(ApplyChanges(o.what_if, &job));
  DFIN_TRY_VOID(SetSwitches(o, r));
  DFIN_TRY_VOID(SetLengths(o, spec.max_position_embeddings, r));
  if (!o.trace.empty()) {
    Result<ExpertTrace> trace = ExpertTrace::Load(o.trace);
    if (!trace) return FailWith(std::move(trace), "--trace");
    job.trace = std::make_unique<ExpertTrace>(std::move(*trace));
    r.trace = job.trace.get();
  } else {
    job.assumptions.push_back(
        "experts are wanted as published of Kimi K3: 30.8 % of a token's by the next one, use falling by exp(-rank / "
        "26,000)");
  }
  AddEngineAssumptions(r, job.assumptions);
  return job;
}

}  // namespace deltafin
