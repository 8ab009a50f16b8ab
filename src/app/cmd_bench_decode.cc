// `deltafin bench decode`: a model end to end beside what the processor could do at best.
#include <CLI/CLI.hpp>
#include <algorithm>
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
#include "bench/decode_bench.h"

namespace deltafin {
namespace {

struct DecodeOptions {
  CommonOptions common;
  DecodeBenchOptions bench;
  bool json = false;
};

Json ToJson(const DecodeBenchReport& r) {
  Json out;
  out["engine"] = r.engine;
  out["rounds"] = r.rounds;
  out["prompt_tokens"] = r.prompt_tokens;
  out["new_tokens"] = r.new_tokens;
  out["seconds_per_token"] = r.seconds_per_token;
  out["tokens_per_second"] = 1 / r.seconds_per_token;
  out["bytes_touched_per_token"] = r.bytes_touched_per_token;
  out["latent_bytes_per_token"] = r.latent_bytes_per_token;
  out["bytes_per_second"] = r.bytes_per_second;
  out["memory_read_ceiling"] = r.memory_ceiling;
  out["decode_ratio"] = r.decode_ratio;
  out["device_bytes_per_token"] = r.device_bytes_per_token;
  out["seconds_wait_per_token"] = r.seconds_wait_per_token;
  out["processor_seconds_per_token"] = r.processor_seconds_per_token;
  out["seconds_outside_per_layer"] = r.seconds_outside_per_layer;
  for (size_t i = 0; i < kTimedOperations; ++i)
    out["seconds_per_token_by_operation"][TimedOperationName(static_cast<TimedOperation>(i))] = r.operation_seconds[i];
  out["seconds_prompt"] = r.seconds_prompt;
  out["prompt_tokens_per_second"] = static_cast<double>(r.prompt_tokens) / r.seconds_prompt;
  out["macs_per_token"] = r.macs_per_token;
  out["prompt_flops_per_second"] = r.flops_per_second;
  out["multiply_add_peak"] = r.multiply_peak;
  out["prompt_ratio"] = r.prompt_ratio;
  out["device_bytes_prompt"] = r.device_bytes_prompt;
  out["peak_rss_bytes"] = PeakResidentBytes();
  out["seconds_fork_join"] = r.seconds_fork_join;
  out["seconds_fork_join_asleep"] = r.seconds_fork_join_asleep;
  return out;
}

std::string Bytes(double bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

std::string ToText(const DecodeBenchReport& r) {
  std::string text = Cat(r.engine, ", medians of ", r.rounds, " rounds after those that warm up\n");
  char line[300];
  std::snprintf(line, sizeof line, "decode, %d tokens: %.3f ms a token, %.2f tokens/s\n",
                static_cast<int>(r.new_tokens), r.seconds_per_token * 1e3, 1 / r.seconds_per_token);
  text += line;
  std::snprintf(line, sizeof line, "  touches %s a token: %s, %.2f of reading memory (%s)\n",
                Bytes(r.bytes_touched_per_token).c_str(), FormatRate(r.bytes_per_second).c_str(), r.decode_ratio,
                FormatRate(r.memory_ceiling).c_str());
  text += line;
  if (r.latent_bytes_per_token > r.bytes_touched_per_token / 100)
    text += Cat("  and looks back at ", Bytes(r.latent_bytes_per_token), " of latents\n");
  std::snprintf(line, sizeof line, "  reads %s a token from drives, waits %.3f ms for them; processor time %.3f ms\n",
                Bytes(r.device_bytes_per_token).c_str(), r.seconds_wait_per_token * 1e3,
                r.processor_seconds_per_token * 1e3);
  text += line;
  text += " ";
  for (size_t i = 0; i < kTimedOperations; ++i) {
    std::snprintf(line, sizeof line, " %s %.3f ms%s", TimedOperationName(static_cast<TimedOperation>(i)),
                  r.operation_seconds[i] * 1e3, i + 1 < kTimedOperations ? "," : "\n");
    text += line;
  }
  std::snprintf(line, sizeof line, "  outside kernels and reads: %.1f us a layer\n", r.seconds_outside_per_layer * 1e6);
  text += line;
  std::snprintf(line, sizeof line,
                "prompt, %d rows: %.1f ms, %.1f rows/s; %.3f GMAC a token: %.1f GFLOP/s, %.2f of multiplying (%.1f)\n",
                static_cast<int>(r.prompt_tokens), r.seconds_prompt * 1e3,
                static_cast<double>(r.prompt_tokens) / r.seconds_prompt, r.macs_per_token * 1e-9,
                r.flops_per_second * 1e-9, r.prompt_ratio, r.multiply_peak * 1e-9);
  text += line;
  std::snprintf(line, sizeof line, "  reads %s from drives\n", Bytes(r.device_bytes_prompt).c_str());
  text += line;
  std::snprintf(line, sizeof line, "threads start and join in %.1f us, in %.1f us when they sleep\n",
                r.seconds_fork_join * 1e6, r.seconds_fork_join_asleep * 1e6);
  return text + line;
}

Result<int> RunDecode(const DecodeOptions& o) {
  DFIN_TRY(const EngineOptions engine_options, o.common.ToEngineOptions());
  // First, so that the memory plan knows of its memory.
  DFIN_TRY(const std::unique_ptr<MachineLimits> limits,
           MachineLimits::Create(engine_options.isa, PlaceThreads(MachineTopology(), engine_options.threads),
                                 engine_options.pin));
  BackendTimes times;  // outlives the engine
  EngineSetup setup;
  const std::vector<TokenId> prompt(static_cast<size_t>(o.bench.prompt_tokens + o.bench.new_tokens));
  EngineSetup::Request request;
  request.prompt = prompt;  // the room that both need
  request.usage_counts = false;
  request.wrap_backend = [&](std::unique_ptr<Backend> backend) { return MakeTimedBackend(std::move(backend), times); };
  DFIN_TRY_VOID(setup.Open(o.common, request));
  setup.StopProgress();
  times.head_outputs = setup.engine->spec().vocab_size;
  DecodeBenchOptions bench = o.bench;
  bench.cancel = setup.interrupt.token();
  const bool show = !o.common.quiet && setup.terminal.stderr_is_terminal();
  if (show) bench.progress = [&](const std::string& what) { setup.terminal.ShowStatus(what); };
  const Result<DecodeBenchReport> report = BenchDecode(*setup.engine, setup.monitor, *limits, times, bench);
  if (show) setup.terminal.ClearStatus();
  if (!report) return Failure(report.error());
  setup.terminal.Write(o.json ? DumpJson(ToJson(*report)) + "\n" : ToText(*report));
  DFIN_TRY_VOID(setup.terminal.StdoutStatus());
  return kExitDone;
}

}  // namespace

Command AddBenchDecode(CLI::App& bench) {
  auto o = std::make_shared<DecodeOptions>();
  CLI::App* app =
      bench.add_subcommand("decode", "A model end to end: prompt and decoding against multiplying and reading");
  o->common.AddTo(*app);
  const CLI::Range tokens(1, 1 << 20);
  app->add_option("--prompt-tokens", o->bench.prompt_tokens, "Tokens of the prompt")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--new", o->bench.new_tokens, "Tokens decoded after it")->check(tokens)->capture_default_str();
  app->add_option("--rounds", o->bench.rounds, "Rounds of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("--json", o->json, "One JSON object on stdout");
  return {app, [o] { return RunDecode(*o); }};
}

}  // namespace deltafin
