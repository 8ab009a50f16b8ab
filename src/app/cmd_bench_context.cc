// `deltafin bench context`: what a token costs behind conversations of several lengths.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/engine_setup.h"
#include "app/exit_code.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/topology.h"
#include "base/units.h"
#include "bench/context_bench.h"

namespace deltafin {
namespace {

struct ContextOptions {
  CommonOptions common;
  ContextBenchOptions bench{.lengths = {64, 1024}};
  bool json = false;
};

Json ToJson(const ContextBenchReport& r) {
  Json out;
  out["engine"] = r.engine;
  out["rounds"] = r.rounds;
  out["new_tokens"] = r.new_tokens;
  out["memory_read_ceiling"] = r.memory_ceiling;
  out["peak_rss_bytes"] = PeakResidentBytes();
  Json rows = Json::array();
  for (const ContextBenchRow& row : r.rows) {
    Json one;
    one["length"] = row.length;
    one["seconds_per_token"] = row.seconds_per_token;
    one["seconds_per_token_least"] = row.least;
    one["seconds_per_token_most"] = row.most;
    one["attention_seconds"] = row.attention_seconds;
    one["latent_bytes"] = row.latent_bytes;
    one["latent_seconds"] = row.latent_seconds;
    one["over_first"] = row.over_first;
    rows.push_back(std::move(one));
  }
  out["results"] = std::move(rows);
  return out;
}

std::string ToText(const ContextBenchReport& r) {
  std::string text = Cat(r.engine, ", medians of ", r.rounds, " rounds in turns, ", r.new_tokens,
                         " tokens each; reading memory: ", FormatRate(r.memory_ceiling), "\n");
  char line[240];
  std::snprintf(line, sizeof line, "%9s %12s %24s %14s %14s %12s %18s\n", "length", "ms a token", "least to most",
                "of it attention", "latents", "read once", "without, x first");
  text += line;
  for (const ContextBenchRow& row : r.rows) {
    char range[40];
    std::snprintf(range, sizeof range, "%.3f to %.3f", row.least * 1e3, row.most * 1e3);
    std::snprintf(line, sizeof line, "%9lld %12.3f %24s %14.3f %14s %9.3f ms %18.2f\n",
                  static_cast<long long>(row.length), row.seconds_per_token * 1e3, range, row.attention_seconds * 1e3,
                  FormatBytes(static_cast<uint64_t>(row.latent_bytes)).c_str(), row.latent_seconds * 1e3,
                  row.over_first);
    text += line;
  }
  return text;
}

Result<int> RunContext(const ContextOptions& o) {
  DFIN_TRY_VOID(CheckContextBench(o.bench));
  DFIN_TRY(const EngineOptions engine_options, o.common.ToEngineOptions());
  // First, so that the memory plan knows of its memory.
  DFIN_TRY(const std::unique_ptr<MachineLimits> limits,
           MachineLimits::Create(engine_options.isa, PlaceThreads(MachineTopology(), engine_options.threads),
                                 engine_options.pin));
  BackendTimes times;  // outlives the engine
  EngineSetup setup;
  const std::vector<TokenId> prompt(static_cast<size_t>(o.bench.lengths.back() + o.bench.new_tokens + 1));
  EngineSetup::Request request;
  request.prompt = prompt;  // the room that the longest needs
  request.sequences = std::ssize(o.bench.lengths) + 1;
  request.usage_counts = false;
  request.wrap_backend = [&](std::unique_ptr<Backend> backend) { return MakeTimedBackend(std::move(backend), times); };
  DFIN_TRY_VOID(setup.Open(o.common, request));
  setup.StopProgress();
  ContextBenchOptions bench = o.bench;
  bench.cancel = setup.interrupt.token();
  const bool show = !o.common.quiet && setup.terminal.stderr_is_terminal();
  if (show) bench.progress = [&](const std::string& what) { setup.terminal.ShowStatus(what); };
  const Result<ContextBenchReport> report = BenchContext(*setup.engine, setup.monitor, *limits, times, bench);
  if (show) setup.terminal.ClearStatus();
  if (!report) return Failure(report.error());
  setup.terminal.Write(o.json ? DumpJson(ToJson(*report)) + "\n" : ToText(*report));
  DFIN_TRY_VOID(setup.terminal.StdoutStatus());
  return kExitDone;
}

}  // namespace

Command AddBenchContext(CLI::App& bench) {
  auto o = std::make_shared<ContextOptions>();
  CLI::App* app =
      bench.add_subcommand("context", "What a token costs behind conversations of several lengths, in turns");
  o->common.AddTo(*app);
  const CLI::Range tokens(1, 1 << 20);
  app->add_option("--lengths", o->bench.lengths, "Tokens of the conversations, ascending")
      ->delimiter(',')
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--new", o->bench.new_tokens, "Tokens decoded behind each")->check(tokens)->capture_default_str();
  app->add_option("--rounds", o->bench.rounds, "Rounds of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("--json", o->json, "One JSON object on stdout");
  return {app, [o] { return RunContext(*o); }};
}

}  // namespace deltafin
