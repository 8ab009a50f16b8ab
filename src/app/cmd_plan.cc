// `deltafin plan`: how fast the model would be on this machine or a described one, simulated; and what would help.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "app/commands.h"
#include "app/exit_code.h"
#include "app/option_checks.h"
#include "app/plan_report.h"
#include "app/plan_request.h"
#include "simulate/calibration.h"
#include "simulate/own_measurements.h"
#include "simulate/plan_chart.h"

namespace deltafin {
namespace {

Status WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
}

Result<int> RunComparison(const PlanOptions& o) {
  if (!o.drives.empty() || o.this_machine || o.reference || !o.plot.empty() || !o.model.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "--calibrate compares with given measurements: it takes no machine and no model");
  DFIN_TRY(const ModelSpec spec, PlannedModel(""));
  const std::vector<simulate::TargetRow> published = simulate::Calibrate(simulate::ModelShape::From(spec), o.seed);
  DFIN_TRY(const std::vector<simulate::TargetRow> own, simulate::CompareOwnMeasurements());
  DFIN_TRY_VOID(WriteOut(o.json ? ComparisonJson(published, own) : ComparisonText(published, own)));
  return kExitDone;
}

bool IsPage(const std::string& path) { return path.ends_with(".html") || path.ends_with(".htm"); }

Status CheckPlot(const std::string& path) {
  if (path.empty() || IsPage(path) || path.ends_with(".svg")) return {};
  return Fail(ErrorCode::kInvalidArgument, "--plot ", path, ": expected a name that ends in .svg or .html");
}

Status WritePlot(const PlanOptions& o, const PlanReport& report) {
  const simulate::PlanRequest& request = report.job->request;
  char rate[64];
  std::snprintf(rate, sizeof rate, "%.3g tokens/s, first token after %.0f s (simulated)",
                report.answer.tokens_per_second, report.answer.seconds_first_token);
  simulate::ChartText text{.title = rate, .notes = {MachineLine(request.machine)}};
  for (const std::string& line : report.job->assumptions) text.notes.push_back("assumed: " + line);
  const std::vector<simulate::PlanAnswer> by_drives = simulate::ByDrives(request);
  const std::string picture = IsPage(o.plot) ? simulate::PlanHtml(report.answer, by_drives, text)
                                             : simulate::PlanSvg(report.answer, by_drives, text);
  std::ofstream file(o.plot, std::ios::binary | std::ios::trunc);
  file << picture;
  file.close();
  if (!file) return Fail(ErrorCode::kIo, "--plot ", o.plot, ": could not be written: ", std::strerror(errno));
  return {};
}

Result<int> RunPlan(const PlanOptions& o) {
  if (o.calibrate) return RunComparison(o);
  DFIN_TRY_VOID(CheckPlot(o.plot));
  DFIN_TRY(const PlanJob job, MakePlanJob(o));
  PlanReport report{.job = &job, .answer = {}, .alternatives = {}, .reference = o.reference && o.what_if.empty()};
  DFIN_TRY(report.answer, simulate::Plan(job.request));
  report.alternatives = simulate::Alternatives(job.request, report.answer);
  if (!o.plot.empty()) DFIN_TRY_VOID(WritePlot(o, report));
  DFIN_TRY_VOID(WriteOut(o.json ? PlanJson(report) : PlanText(report)));
  return kExitDone;
}

void AddMachineOptions(CLI::App& app, PlanOptions& o) {
  app.add_flag("--this-machine", o.this_machine,
               "This machine: drives as `deltafin drives` measured them, memory and processor as found");
  app.add_flag("--reference", o.reference, "The machine of the published measurements (M5 Max, 128 GB, four drives)");
  app.add_option("--drives", o.drives, "Rates of the drives in GB/s, e.g. 13.6,7.1,7.1,5.4")->type_name("RATES");
  app.add_option("--ram", o.ram, "Memory of the machine")->type_name("SIZE");
  app.add_option("--hub", o.hubs, "Drives that share a port and what it carries, e.g. 7.1+5.4@8 (repeatable)")
      ->type_name("RATES@RATE");
  app.add_option("--latency", o.latency, "Milliseconds until a drive delivers the first byte (default: 0.2)")
      ->type_name("MS");
  app.add_option("--memory-bandwidth", o.memory_bandwidth, "Of reading with all threads, a second (default: 60GB)")
      ->type_name("SIZE");
  app.add_option("--arithmetic", o.arithmetic, "TFLOP/s in float32 (default: 1)")->type_name("N");
  app.add_option("--what-if", o.what_if,
                 "Change the machine: +drive:7.1, -drive:5.4, +ram:64GB, -ram:32GB (repeatable)")
      ->type_name("CHANGE");
  app.add_option("--state-dir", o.state_dir, "Folder of the drive profiles, for --this-machine")->type_name("DIR");
}

}  // namespace

Command AddPlan(CLI::App& root) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* app =
      root.add_subcommand("plan", "Simulate how fast the model would be on this machine or a described one");
  AddMachineOptions(*app, *o);
  app->add_option("--model", o->model, "Folder with a config.json (default: Kimi K3's shape)")->type_name("DIR");
  app->add_option("--trace", o->trace,
                  "Experts as a run wanted them (run --expert-trace), instead of published statistics")
      ->type_name("FILE");
  app->add_option(
      "--layout", o->layout,
      "striped (as pack makes it), mirrored (a copy on each drive) or shards (as released, on the fastest)");
  app->add_option("--cache", o->cache, "Memory for cached experts (default: what the rest leaves)")->type_name("SIZE");
  app->add_option("--cache-policy", o->cache_policy, "frequency (the engine's), layer-lru or lru");
  app->add_option("--dense", o->dense, "Dense weights: packed (12 bits, made by pack --dense) or bf16 (as released)");
  app->add_option("--draft", o->draft, "off, or the chance that a drafted token is right, e.g. 0.8")
      ->type_name("CHANCE");
  const auto at_least_one = [](const std::string& text) { return CheckWhole(text, 1); };
  app->add_option("--prompt-tokens", o->prompt_tokens, "Length of the prompt (default: 512)")->check(at_least_one);
  app->add_option("--context", o->context, "Longest conversation that memory is kept for (default: 8192)")
      ->check(at_least_one);
  app->add_option("--chunk", o->chunk,
                  "Most tokens of a prompt in one pass (default: what memory allows, 4096 at most)")
      ->check(at_least_one);
  app->add_option("--seed", o->seed, "Of the made-up routing")->check(CheckWholeUnsigned);
  app->add_flag("--calibrate", o->calibrate,
                "Instead: simulated beside measured, of the published engine and of this one");
  app->add_option("--plot", o->plot, "Write a picture: where a step's time goes, and the rate by number of drives")
      ->type_name("F.svg|F.html");
  app->add_flag("--json", o->json, "One JSON object on stdout");
  return {app, [o] { return RunPlan(*o); }};
}

}  // namespace deltafin
