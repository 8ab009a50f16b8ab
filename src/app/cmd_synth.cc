// `deltafin synth`: a complete checkpoint with invented weights, for trying the engine at any size.
#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/option_checks.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "synth/shapes.h"
#include "synth/synth.h"

namespace deltafin {
namespace {

struct SynthCommandOptions {
  std::string out, routing = "skewed";
  SynthShape shape;
  uint64_t seed = 1;
  bool quiet = false;
};

Result<int> RunSynth(const SynthCommandOptions& o) {
  SynthOptions options;
  DFIN_TRY(options.spec, MakeSynthSpec(o.shape));
  if (o.routing != "skewed" && o.routing != "uniform")
    return Fail(ErrorCode::kInvalidArgument, "--routing ", o.routing, ": expected skewed or uniform");
  options.routing = o.routing == "uniform" ? SynthRouting::kUniform : SynthRouting::kSkewed;
  options.seed = o.seed;
  options.folder = o.out;
  options.threads = UsableCores();

  Terminal terminal;
  const Interrupt interrupt;
  const SynthPlan plan = PlanSynth(options.spec);
  if (!o.quiet)
    terminal.WriteNote(Cat(FormatBytes(plan.file_bytes), " in ", plan.shards,
                           " shards: ", FormatBytes(plan.dense_bytes), " dense, ", FormatBytes(plan.expert_bytes),
                           " experts; ", FormatBytes(plan.bytes_per_token), " touched a token\n"));
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  const int64_t period_ns = terminal.stderr_is_terminal() ? 500'000'000 : 10'000'000'000;
  int64_t last = start;
  const auto progress = [&](const SynthProgress& p) {
    const int64_t now = clock.NowNs();
    if (o.quiet || now - last < period_ns) return;
    last = now;
    const double rate = static_cast<double>(p.bytes_done) / SecondsBetween(start, now);
    terminal.ShowStatus(Cat("writing  ", FormatBytes(p.bytes_done), "/", FormatBytes(p.bytes_total), "  shard ",
                            p.shard, "/", p.shards, "  ", FormatRate(rate), "  ",
                            FormatSeconds(static_cast<double>(p.bytes_total - p.bytes_done) / rate), " left"));
  };
  DFIN_TRY_VOID(Synthesize(options, progress, interrupt.token()));
  terminal.ClearStatus();
  if (!o.quiet)
    terminal.WriteNote(Cat("wrote ", o.out, " in ", FormatSeconds(SecondsBetween(start, clock.NowNs())), "\n"));
  return kExitDone;
}

}  // namespace

Command AddSynth(CLI::App& root) {
  auto o = std::make_shared<SynthCommandOptions>();
  CLI::App* app = root.add_subcommand("synth", "Write a checkpoint with invented weights");
  app->add_option("--shape", o->shape.name, "k3, k3-slice, nano, or a config.json to take the dimensions from")
      ->required();
  app->add_option("--layers", o->shape.layers, "Another number of layers")->check([](const std::string& text) {
    return CheckWhole(text, 1);
  });
  app->add_option("--experts", o->shape.experts, "Another number of experts a layer")
      ->check([](const std::string& text) { return CheckWhole(text, 1); });
  app->add_option("--vocab", o->shape.vocabulary, "Another vocabulary")->check([](const std::string& text) {
    return CheckWhole(text, 1);
  });
  app->add_option("--seed", o->seed, "Same seed, same bytes")->check(CheckWholeUnsigned);
  app->add_option("--routing", o->routing, "skewed (like a trained model) or uniform");
  app->add_option("--out", o->out, "Folder to write; new or empty")->required()->type_name("DIR");
  app->add_flag("--quiet", o->quiet, "No progress on stderr");
  return {app, [o] { return RunSynth(*o); }};
}

}  // namespace deltafin
