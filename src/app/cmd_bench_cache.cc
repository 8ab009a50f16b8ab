// `deltafin bench cache`: what caches of several sizes would have read for a recorded trace. Counts only; reads nothing
// but the trace.
#include "app/cmd_bench_cache.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/exit_code.h"
#include "app/option_checks.h"
#include "base/json.h"
#include "base/units.h"
#include "cache/trace_replay.h"

namespace deltafin {
namespace {

struct CacheBenchOptions {
  std::string trace, earlier;
  std::vector<int64_t> slots;
  std::vector<std::string> sizes;
  bool json = false;
};

// Without --slots and --sizes: a layer's floor, and these shares of all experts.
constexpr double kShares[] = {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};

// Records read by one start, cold or warm, with one number of slots.
struct Reads {
  uint64_t policy = 0, layer_lru = 0, static_set = 0, fewest = 0;
  double ratio() const {
    if (static_set == 0) return policy == 0 ? 1 : 0;  // 0: there is none
    return static_cast<double>(policy) / static_cast<double>(static_set);
  }
};

struct Row {
  int64_t slots = 0;
  Reads cold, warm;
};

Reads Replay(const ExpertTrace& trace, int64_t slots, const ExpertUsage* usage) {
  const ExpertTraceShape& shape = trace.shape();
  std::vector<ExpertKey> warm;
  if (usage != nullptr) warm = usage->MostUsed(LayersOf(trace), slots);
  const auto policy = CreateFrequencyPolicy({.slots = slots,
                                             .layers = shape.layers,
                                             .experts = shape.experts,
                                             .experts_per_token = shape.experts_per_token,
                                             .prior = usage});
  const auto lru = CreateLayerLruPolicy(slots, shape.layers);
  return {.policy = ReplayReads(trace, slots, *policy, warm),
          .layer_lru = ReplayReads(trace, slots, *lru, warm),
          .static_set = StaticSetReads(trace, slots, usage != nullptr),
          .fewest = FewestReads(trace, slots, warm)};
}

Result<std::vector<int64_t>> SlotsToTry(const CacheBenchOptions& o, const ExpertTrace& trace) {
  const ExpertTraceShape& shape = trace.shape();
  const int64_t all = static_cast<int64_t>(LayersOf(trace).size()) * shape.experts;
  std::vector<int64_t> slots = o.slots;
  for (const std::string& text : o.sizes) {
    Result<uint64_t> size = ParseSize(text);
    if (!size) return FailWith(std::move(size), "--sizes");
    if (*size < shape.record_bytes)
      return Fail(ErrorCode::kInvalidArgument, "--sizes ", text, ": expected at least ", shape.record_bytes,
                  " bytes, one expert");
    slots.push_back(static_cast<int64_t>(*size / shape.record_bytes));
  }
  if (slots.empty()) {
    slots.push_back(shape.experts_per_token);
    for (const double share : kShares) slots.push_back(static_cast<int64_t>(share * static_cast<double>(all)));
  }
  for (int64_t& count : slots) count = std::clamp<int64_t>(count, 1, std::max<int64_t>(all, 1));
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

Json ToJson(const Reads& reads) {
  Json out;
  out["policy"] = reads.policy;
  out["layer_lru"] = reads.layer_lru;
  out["static_set"] = reads.static_set;
  out["fewest"] = reads.fewest;
  out["ratio"] = reads.ratio();
  return out;
}

Json ToJson(const ExpertTrace& trace, const std::vector<Row>& rows) {
  Json out;
  out["layers"] = LayersOf(trace).size();
  out["experts"] = trace.shape().experts;
  out["experts_per_token"] = trace.shape().experts_per_token;
  out["record_bytes"] = trace.shape().record_bytes;
  out["steps"] = trace.steps().size();
  out["wanted"] = trace.uses();
  out["cut"] = trace.was_cut();
  Json results = Json::array();
  for (const Row& row : rows) {
    Json result;
    result["slots"] = row.slots;
    result["cold"] = ToJson(row.cold);
    result["warm"] = ToJson(row.warm);
    results.push_back(std::move(result));
  }
  out["results"] = std::move(results);
  return out;
}

std::string ToText(const Reads& reads) {
  char text[120];
  std::snprintf(text, sizeof text, "%9llu %9llu %9llu %9llu  %5.3f", static_cast<unsigned long long>(reads.policy),
                static_cast<unsigned long long>(reads.layer_lru), static_cast<unsigned long long>(reads.static_set),
                static_cast<unsigned long long>(reads.fewest), reads.ratio());
  return text;
}

std::string ToText(const ExpertTrace& trace, const std::vector<Row>& rows, const std::string& counts) {
  int64_t tokens = 0;
  for (const ExpertTrace::Step& step : trace.steps()) tokens += step.rows;
  std::string text =
      Cat(trace.steps().size(), " steps, ", tokens, " tokens, ", trace.uses(), " experts wanted, of ",
          LayersOf(trace).size(), " layers of ", trace.shape().experts,
          trace.was_cut() ? " (the last step is cut)" : "", "\nrecords read; warm: the experts most used in ", counts,
          " were there before; ratio: policy over best static set\n");
  constexpr const char* kColumns = "   policy layer lru    static    fewest  ratio";
  text += Cat("  slots     size | cold ", kColumns, " | warm ", kColumns, "\n");
  for (const Row& row : rows) {
    char start[64];
    const std::string size = FormatBytes(static_cast<uint64_t>(row.slots) * trace.shape().record_bytes);
    std::snprintf(start, sizeof start, "%7lld %8s |      ", static_cast<long long>(row.slots), size.c_str());
    text += Cat(start, ToText(row.cold), " |      ", ToText(row.warm), "\n");
  }
  return text;
}

Result<int> RunCacheBench(const CacheBenchOptions& o) {
  Result<ExpertTrace> trace = ExpertTrace::Load(o.trace);
  if (!trace) return FailWith(std::move(trace), "--trace");
  ExpertUsage usage = CountUsage(*trace);
  if (!o.earlier.empty()) {
    Result<ExpertTrace> earlier = ExpertTrace::Load(o.earlier);
    if (!earlier) return FailWith(std::move(earlier), "--earlier");
    if (earlier->shape() != trace->shape())
      return Fail(ErrorCode::kInvalidArgument, "--earlier ", o.earlier,
                  ": expected a trace of the same model as --trace, got another shape");
    usage = CountUsage(*earlier);
  }
  DFIN_TRY(const std::vector<int64_t> slots, SlotsToTry(o, *trace));
  std::vector<Row> rows;
  for (const int64_t count : slots)
    rows.push_back({count, Replay(*trace, count, nullptr), Replay(*trace, count, &usage)});
  const std::string counts = o.earlier.empty() ? "this very trace" : o.earlier;
  const std::string text = o.json ? DumpJson(ToJson(*trace, rows)) + "\n" : ToText(*trace, rows, counts);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
  return kExitDone;
}

}  // namespace

Command AddBenchCache(CLI::App& bench) {
  auto o = std::make_shared<CacheBenchOptions>();
  CLI::App* app = bench.add_subcommand("cache", "What caches of several sizes would have read for a recorded trace");
  app->add_option("--trace", o->trace, "Trace that run --expert-trace wrote")->required()->type_name("FILE");
  app->add_option("--earlier", o->earlier, "Trace whose counts warm the cache (default: the same one)")
      ->type_name("FILE");
  app->add_option("--slots", o->slots,
                  "Sizes as numbers of experts, comma-separated (default: from one layer's to all)")
      ->delimiter(',')
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  app->add_option("--sizes", o->sizes, "Sizes as memory, e.g. 8GiB,16GiB")->delimiter(',')->type_name("SIZE");
  app->add_flag("--json", o->json, "One JSON object on stdout");
  RefuseEmptyValues(*app);
  return {app, [o] { return RunCacheBench(*o); }};
}

}  // namespace deltafin
