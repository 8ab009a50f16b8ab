// `deltafin plan`: how fast the model would be on this machine or a described one, simulated; and what would help.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "app/commands.h"
#include "app/exit_code.h"
#include "app/option_checks.h"
#include "app/plan_report.h"
#include "app/plan_request.h"
#include "checkpoint/atomic_file.h"
#include "simulate/calibration.h"
#include "simulate/own_measurements.h"
#include "simulate/plan_chart.h"

namespace deltafin {
namespace {

Status WriteOut(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
}

// All but what it uses, whatever options there will be.
Status CheckComparison(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != "--calibrate" && name != "--seed" && name != "--json")
      return Fail(ErrorCode::kInvalidArgument, name,
                  ": does nothing with --calibrate, which compares with given measurements: only --seed and --json do");
  }
  return {};
}

Result<int> RunComparison(const PlanOptions& o, const CLI::App& app) {
  DFIN_TRY_VOID(CheckComparison(app));
  DFIN_TRY(const ModelSpec spec, PlannedModel(""));
  DFIN_TRY(const std::vector<simulate::TargetRow> published,
           simulate::Calibrate(simulate::ModelShape::From(spec), o.seed));
  DFIN_TRY(const std::vector<simulate::TargetRow> own, simulate::CompareOwnMeasurements(o.seed));
  DFIN_TRY_VOID(WriteOut(o.json ? ComparisonJson(published, own) : ComparisonText(published, own)));
  return kExitDone;
}

bool IsPage(const std::string& path) { return path.ends_with(".html") || path.ends_with(".htm"); }

Status CheckPlot(const std::string& path) {
  if (path.empty()) return {};
  if (!IsPage(path) && !path.ends_with(".svg"))
    return Fail(ErrorCode::kInvalidArgument, "--plot ", path, ": expected a name that ends in .svg or .html");
  std::error_code failed;
  const std::filesystem::file_status there = std::filesystem::status(path, failed);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return Fail(ErrorCode::kInvalidArgument, "--plot ", path, ": expected a file or a new name, got something else");
  return {};
}

Status WritePlot(const PlanOptions& o, const PlanReport& report) {
  const simulate::PlanRequest& request = report.job->request;
  char rate[64];
  std::snprintf(rate, sizeof rate, "%.3g tokens/s, first token after %.0f s (simulated)",
                report.answer.tokens_per_second, report.answer.seconds_first_token);
  simulate::ChartText text{
      .title = rate,
      .notes = {Cat(MachineLine(request.machine), ", experts ", simulate::ToString(request.layout.kind))},
      .alternatives = report.alternatives};
  if (report.base_answer) text.notes.push_back(ChangeLine(report));
  for (const std::string& line : report.job->assumptions) text.notes.push_back("assumed: " + line);
  const std::vector<simulate::PlanAnswer> by_drives = simulate::ByDrives(request);
  const std::string picture = IsPage(o.plot) ? simulate::PlanHtml(report.answer, by_drives, text)
                                             : simulate::PlanSvg(report.answer, by_drives, text);
  const Status written = WriteFileAtomically(o.plot, std::as_bytes(std::span(picture)));
  return written ? written : Fail(written.error().code(), "--plot ", written.error().message());
}

// Of the terminal on stdout; what fits in one where it is none.
size_t Columns() {
  constexpr size_t kUsual = 80;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

// The machine before --what-if. One that is too small for the model is a machine too: then there is nothing beside it.
Status AddBase(const PlanJob& job, PlanReport* report) {
  if (!job.base) return {};
  simulate::PlanRequest request = job.request;
  request.machine = *job.base;
  Result<simulate::PlanAnswer> answer = simulate::Plan(request);
  if (answer) report->base_answer = std::move(*answer);
  if (!answer && answer.error().code() != ErrorCode::kOutOfMemory) return Failure(answer.error());
  return {};
}

Result<int> RunPlan(const PlanOptions& o, const CLI::App& app) {
  if (o.calibrate) return RunComparison(o, app);
  DFIN_TRY_VOID(CheckPlot(o.plot));
  DFIN_TRY(const PlanJob job, MakePlanJob(o));
  PlanReport report{
      .job = &job, .answer = {}, .base_answer = {}, .alternatives = {}, .reference = o.reference && o.what_if.empty()};
  DFIN_TRY(report.answer, simulate::Plan(job.request));
  DFIN_TRY_VOID(AddBase(job, &report));
  report.alternatives = simulate::Alternatives(job.request, report.answer);
  if (!o.plot.empty()) DFIN_TRY_VOID(WritePlot(o, report));
  DFIN_TRY_VOID(WriteOut(o.json ? PlanJson(report) : PlanText(report, Columns())));
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
  return {app, [o, app] { return RunPlan(*o, *app); }};
}

}  // namespace deltafin
