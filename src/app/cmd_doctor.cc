// `deltafin doctor`: what is wrong with this machine, these drives and this model, why it matters, what mends it.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/backend_table.h"
#include "app/bundled_model.h"
#include "app/commands.h"
#include "app/common_options.h"
#include "app/doctor_report.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "app/version.h"
#include "base/units.h"
#include "doctor/doctor.h"

namespace deltafin {
namespace {

struct DoctorCommandOptions {
  std::string model, dense, state_dir, memory;
  std::vector<std::string> experts;
  bool no_state = false, json = false, quick = false, verbose = false;
};

Result<DoctorOptions> ToDoctorOptions(const DoctorCommandOptions& o) {
  const auto refuse = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (o.no_state && !o.state_dir.empty()) return refuse("--no-state and --state-dir: give one of them");
  if (o.model.empty() && (!o.experts.empty() || !o.dense.empty()))
    return refuse("--experts and --dense: expected --model with them, got none: they are checked against it");
  if (o.json && o.verbose) return refuse("--json and --verbose: the JSON holds everything: give one of them");
  DoctorOptions options;
  options.model = o.model;
  options.experts = o.experts;
  options.dense = o.dense;
  if (!o.memory.empty()) {
    Result<uint64_t> size = ParseSize(o.memory);
    if (!size) return FailWith(std::move(size), "--memory");
    options.memory = *size;
  }
  if (!o.no_state) options.state_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  options.self_test_model = FindBundledModel("k3-nano");
  options.versions = ProgramVersions();
  options.quick = o.quick;
  options.backends = &LinkedBackends();
  return options;
}

bool WantsColour(const Terminal& terminal) {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  return terminal.stdout_is_terminal() && (no_colour == nullptr || *no_colour == '\0') &&
         (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

Result<int> RunDoctorCommand(const DoctorCommandOptions& o) {
  DFIN_TRY(DoctorOptions options, ToDoctorOptions(o));
  Terminal terminal;
  const Interrupt interrupt;
  options.cancel = interrupt.token();
  if (terminal.stderr_is_terminal())
    options.progress = [&](const std::string& group) { terminal.ShowStatus("checking: " + group); };
  const Result<std::vector<Finding>> findings = RunDoctor(options, SystemHost());
  terminal.ClearStatus();
  if (!findings) return Failure(findings.error());
  if (o.json) {
    std::printf("%s\n", DumpJson(DoctorJson(*findings)).c_str());
  } else {
    const int width = terminal.stdout_is_terminal() ? Terminal::Width() : 0;
    const std::string text =
        DoctorText(*findings, {.verbose = o.verbose, .colour = WantsColour(terminal), .width = width});
    std::fputs(text.c_str(), stdout);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
  return CountFindings(*findings).faults > 0 ? kExitFaultsFound : kExitDone;
}

}  // namespace

Command AddDoctor(CLI::App& root) {
  auto o = std::make_shared<DoctorCommandOptions>();
  CLI::App* app =
      root.add_subcommand("doctor", "Look for what is wrong with machine, drives and model; changes nothing");
  app->add_option("--model", o->model, "Folder of the checkpoint (default: look at the machine only)")
      ->type_name("DIR");
  app->add_option("--experts", o->experts,
                  "Folder of its expert set, one for each drive (repeatable; default: those that pack noted)")
      ->type_name("DIR");
  app->add_option("--dense", o->dense, "Folder of dense weights made by pack --dense")->type_name("DIR");
  app->add_option("--memory", o->memory, "Memory that a run would be given, e.g. 24GiB")->type_name("SIZE");
  app->add_option("--state-dir", o->state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Do not look at what is kept between runs");
  app->add_flag("--quick", o->quick, "Read no weights: no sample checksums, no test of the arithmetic");
  app->add_flag("--verbose", o->verbose, "Show what is in order too");
  app->add_flag("--json", o->json, "One JSON object");
  return {app, [o] { return RunDoctorCommand(*o); }};
}

}  // namespace deltafin
