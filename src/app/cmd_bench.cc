// `deltafin bench`: its subcommands; of them `kernels`: the matrix kernels beside what the processor could do at best.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cmd_bench_cache.h"
#include "app/cmd_bench_run.h"
#include "app/commands.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "base/json.h"
#include "base/topology.h"
#include "bench/kernel_bench.h"
#include "synth/shapes.h"

namespace deltafin {
namespace {

struct BenchOptions {
  std::string isa = "auto";
  int threads = 0;  // 0: one, and one for each fast core
  double seconds = 30;
  int rounds = 5;
  bool json = false, quiet = false;
};

Json ToJson(const KernelBenchReport& report) {
  Json out;
  out["backend"] = report.backend;
  out["rounds"] = report.rounds;
  Json results = Json::array();
  for (const KernelFigure& f : report.results) {
    Json figure;
    figure["kernel"] = f.kernel;
    figure["rows"] = f.rows;
    figure["threads"] = f.threads;
    figure["value"] = f.value;
    figure["ceiling"] = f.ceiling;
    figure["unit"] = f.unit;
    figure["ratio"] = f.ratio;
    figure["rows_over_one"] = f.rows_over_one;
    results.push_back(std::move(figure));
  }
  out["results"] = std::move(results);
  return out;
}

std::string ToText(const KernelBenchReport& report) {
  std::string text = Cat(report.backend, ", medians of ", report.rounds, " interleaved rounds\n");
  char line[160];
  std::snprintf(line, sizeof line, "%-14s %4s %7s %18s %18s %6s  %s\n", "kernel", "rows", "threads", "speed", "limit",
                "ratio", "rows/s over one row");
  text += line;
  for (const KernelFigure& f : report.results) {
    std::snprintf(line, sizeof line, "%-14s %4d %7d %10.1f %-7s %10.1f %-7s %6.2f  %.2f\n", f.kernel.c_str(),
                  static_cast<int>(f.rows), f.threads, f.value, f.unit.c_str(), f.ceiling, f.unit.c_str(), f.ratio,
                  f.rows_over_one);
    text += line;
  }
  return text;
}

Result<int> RunKernels(const BenchOptions& o) {
  Terminal terminal;
  const Interrupt interrupt;
  KernelBenchOptions options;
  DFIN_TRY(options.spec, MakeSynthSpec({.name = "k3"}));
  options.isa = o.isa;
  options.seconds = o.seconds;
  options.rounds = o.rounds;
  options.cancel = interrupt.token();
  options.threads = {o.threads == 0 ? 1 : o.threads};
  if (o.threads == 0 && DefaultThreads() > 1) options.threads.push_back(DefaultThreads());
  const bool show = !o.quiet && terminal.stderr_is_terminal();
  if (show) options.progress = [&](const std::string& what) { terminal.ShowStatus(what); };
  const Result<KernelBenchReport> report = BenchKernels(options);
  if (show) terminal.ClearStatus();
  if (!report) return Failure(report.error());
  const std::string text = o.json ? DumpJson(ToJson(*report)) + "\n" : ToText(*report);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
  return kExitDone;
}

}  // namespace

Command AddBench(CLI::App& root) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = root.add_subcommand("bench", "Measures this machine and this program");
  bench->require_subcommand(1);
  CLI::App* kernels = bench->add_subcommand("kernels", "Matrix kernels at K3's shapes against reading and multiplying");
  kernels->add_option("--isa", options->isa, "Instruction set: auto, avx2, avx512, avx512_vnni, neon");
  kernels->add_option("--threads", options->threads, "Threads (default: one, then one for each fast core)")
      ->check(CLI::Range(1, 1024));
  kernels->add_option("--seconds", options->seconds, "About how long")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  kernels->add_option("--rounds", options->rounds, "Rounds of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  kernels->add_flag("--json", options->json, "One JSON object on stdout");
  kernels->add_flag("--quiet", options->quiet, "No progress on stderr");
  const Command decode = AddBenchDecode(*bench);
  const Command cache = AddBenchCache(*bench);
  const Command draft = AddBenchDraft(*bench);
  const Command context = AddBenchContext(*bench);
  const std::vector<Command> others = {decode, context, cache, draft, AddBenchRun(*bench), AddBenchCompare(*bench)};
  return {bench, [options, kernels, others]() -> Result<int> {
            if (kernels->parsed()) return RunKernels(*options);
            for (const Command& command : others)
              if (command.app->parsed()) return command.run();
            return kExitUsage;
          }};
}

}  // namespace deltafin
