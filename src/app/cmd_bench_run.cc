// `deltafin bench run`: the published protocol: cold runs in balanced order, of fixed prompts and lengths, whose text
// is checked before a number counts.
#include "app/cmd_bench_run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "app/bench_arm_check.h"
#include "app/bench_arms.h"
#include "app/bench_prompts.h"
#include "app/bench_targets.h"
#include "app/build_description.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/option_checks.h"
#include "app/terminal.h"
#include "app/text_model.h"
#include "base/digest.h"
#include "bench/result_json.h"
#include "bench/run_protocol.h"
#include "bench/run_report.h"
#include "checkpoint/atomic_file.h"
#include "spec/model_spec.h"

namespace deltafin {
namespace {

constexpr int kRounds = 5, kQuickRounds = 3;
constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;
// The image that runs now, even if its file was replaced meanwhile.
constexpr const char* kThisProgram = "/proc/self/exe";

struct BenchRunOptions {
  CommonOptions common;
  std::vector<std::string> arms, inexact, prompts, prompt_files, expect;
  std::vector<int64_t> lengths;
  std::string expect_file, out;
  int rounds = 0, warm_ups = 1;
  bool quick = false, drop_caches = false, json = false;
};

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// As a shell would need it.
std::string Quoted(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n\"'\\$&|;<>()*?#~`") == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string CommandText(const CLI::App& app) {
  std::string out = "deltafin bench run";
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool is_flag = option->get_type_size() == 0 || option->get_expected_max() == 0;
    if (is_flag) out += " " + option->get_name();
    for (const std::string& value : option->results())
      if (!is_flag) out += Cat(" ", option->get_name(), " ", Quoted(value));
  }
  return out;
}

Status CheckOptions(const BenchRunOptions& o) {
  const auto refuse = [](const char* what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (!o.common.state_dir.empty()) return refuse("--state-dir: bench run keeps nothing, so that every run is cold");
  if (!o.common.expert_trace.empty())
    return refuse("--expert-trace: writing while measuring would be measured: use run");
  if (o.common.warm_start != "auto" && o.common.warm_start != "off")
    return refuse("--warm-start: expected auto or off; a cold run has nothing to start from");
  if (o.quick && !o.lengths.empty()) return refuse("--quick, --lengths: give one of them; --quick means 17");
  if (o.quick && o.rounds > 0) return refuse("--quick, --rounds: give one of them; --quick means 3");
  const bool only_long = !o.prompts.empty() && std::all_of(o.prompts.begin(), o.prompts.end(),
                                                           [](const std::string& name) { return name == "long"; });
  if (!o.lengths.empty() && only_long && o.prompt_files.empty())
    return refuse("--lengths: does nothing with --prompts long, which is followed by one token");
  return {};
}

Result<std::vector<BenchPrompt>> PromptsOf(const BenchRunOptions& o) {
  PromptChoice choice{o.prompts, o.prompt_files, o.lengths};
  if (choice.names.empty() && choice.files.empty()) choice.names = {"essay", "long"};
  if (choice.lengths.empty()) choice.lengths = o.quick ? std::vector<int64_t>{17} : std::vector<int64_t>{17, 128, 512};
  const std::string config_path = o.common.model + "/config.json";
  DFIN_TRY(const std::string config, ReadWholeFile(config_path, kMostConfigBytes));
  DFIN_TRY(const ModelSpec spec, ModelSpec::FromConfigText(config, config_path));
  if (!HasTokenizer(o.common.model)) return MakeBenchPrompts(choice, nullptr, spec.vocab_size);
  DFIN_TRY(const TextModel text, LoadTextModel(o.common.model));
  return MakeBenchPrompts(choice, text.tokenizer.get(), spec.vocab_size);
}

// From --expect CASE=SHA256 and from the results of an earlier run.
Result<std::map<std::string, std::string>> ExpectedOf(const BenchRunOptions& o,
                                                      const std::vector<BenchPrompt>& prompts) {
  std::map<std::string, std::string> out;
  if (!o.expect_file.empty()) {
    Result<BenchFile> file = ReadBenchFile(o.expect_file);
    if (!file) return FailWith(std::move(file), "--expect-file");
    for (const CaseFigures& f : file->figures)
      for (const BenchPrompt& prompt : prompts)
        if (prompt.name == f.prompt && prompt.ids_sha256 == file->prompt_sha256[f.prompt] &&
            std::find(prompt.lengths.begin(), prompt.lengths.end(), f.new_tokens) != prompt.lengths.end())
          out[f.name()] = f.ids_sha256;
    if (out.empty())
      return Fail(ErrorCode::kInvalidArgument, "--expect-file ", o.expect_file,
                  ": has none of the prompts and lengths that run here");
  }
  for (const std::string& text : o.expect) {
    const size_t equals = text.find('=');
    const std::string hash = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      return Fail(ErrorCode::kInvalidArgument, "--expect ", text,
                  ": expected CASE=SHA256, such as essay-17=<64 hexadecimal digits>");
    out[text.substr(0, equals)] = hash;
  }
  return out;
}

Status WriteFile(const std::string& path, const std::string& text) {
  return WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

Status WriteReports(const std::string& folder, const BenchResult& result) {
  DFIN_TRY_VOID(WriteFile(folder + "/bench.json", DumpJson(ResultToJson(result)) + "\n"));
  DFIN_TRY_VOID(WriteFile(folder + "/bench.md", ResultMarkdown(result)));
  return WriteFile(folder + "/bench.html", ResultHtml(result));
}

Status PrepareFolder(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Fail(ErrorCode::kIo, "--out ", folder, ": the folder cannot be made: ", failed.message());
  if (std::filesystem::exists(folder + "/bench.json", failed))
    return Fail(ErrorCode::kInvalidArgument, "--out ", folder, ": holds a result already: choose another folder");
  return WriteFile(folder + "/bench.json", "{\"state\":\"partial\",\"reason\":\"nothing was run yet\"}\n");
}

Result<ProtocolOptions> PlanOf(const BenchRunOptions& o, const BenchArms& arms) {
  ProtocolOptions plan;
  plan.arms = arms.arms;
  DFIN_TRY(plan.prompts, PromptsOf(o));
  DFIN_TRY(plan.expected, ExpectedOf(o, plan.prompts));
  const auto count = static_cast<int>(arms.arms.size());
  const int wanted = o.quick ? kQuickRounds : kRounds;
  plan.rounds = o.rounds > 0 ? o.rounds : (wanted + count - 1) / count * count;
  plan.warm_ups = o.warm_ups;
  DFIN_TRY_VOID(CheckProtocol(plan));
  return plan;
}

Result<BenchResult> DescribeRun(const BenchRunOptions& o, const CLI::App& app) {
  BenchResult result;
  DFIN_TRY(const std::string config, ReadWholeFile(o.common.model + "/config.json", kMostConfigBytes));
  result.model_sha256 = Sha256Hex(config);
  result.model = o.common.model;
  result.started = Now();
  result.command = CommandText(app);
  result.machine = DescribeMachine(DescribeProgram());
  return result;
}

void FinishResult(const BenchTargets& targets, BenchResult* result) {
  result->cold = targets.Describe();
  result->warnings = WarningsOf(*result);
  if (const std::string warning = targets.Warning(); !warning.empty()) result->warnings.push_back(warning);
}

Result<int> RunBenchRun(const BenchRunOptions& o, const CLI::App& app) {
  DFIN_TRY_VOID(CheckOptions(o));
  Terminal terminal;
  const Interrupt interrupt(1 << 20);  // the run in progress is always ended, and what there is written
  DFIN_TRY(BenchResult result, DescribeRun(o, app));
  DFIN_TRY(const BenchArms arms, ParseBenchArms(app, o.arms, o.inexact));
  DFIN_TRY(ProtocolOptions plan, PlanOf(o, arms));
  DFIN_TRY_VOID(CheckArmsOpen(arms, plan.prompts, interrupt));
  if (!o.out.empty()) DFIN_TRY_VOID(PrepareFolder(o.out));
  BenchTargets targets(arms.settings, o.drop_caches);
  plan.runner = CreateChildRunner(kThisProgram, arms.common);
  plan.make_cold = [&] { return targets.MakeCold(); };
  plan.find_devices = [&](const std::vector<OwnDrive>& drives) { return targets.Devices(drives); };
  plan.cancel = interrupt.token();
  const bool show = !o.common.quiet && terminal.stderr_is_terminal();
  plan.progress = [&](const std::string& what) {
    if (show) terminal.ShowStatus(what);
  };
  // What a power failure leaves. Whether it can be written is for the end to say.
  plan.after_run = [&](const BenchResult& so_far) {
    if (!o.out.empty()) (void)WriteFile(o.out + "/bench.json", DumpJson(ResultToJson(so_far)) + "\n");
  };
  const Status ran = RunProtocol(plan, &result);
  if (show) terminal.ClearStatus();
  FinishResult(targets, &result);
  const Status written = o.out.empty() ? Status() : WriteReports(o.out, result);
  if (ran || !result.runs.empty())
    terminal.Write(o.json ? DumpJson(ResultToJson(result)) + "\n" : ResultMarkdown(result));
  if (!ran) return Failure(ran.error());
  DFIN_TRY_VOID(written);
  DFIN_TRY_VOID(terminal.StdoutStatus());
  if (result.state == BenchState::kVoided) terminal.WriteNote(Cat("deltafin bench run: voided: ", result.reason, "\n"));
  return result.state == BenchState::kVoided ? kExitFaultsFound : kExitDone;
}

void AddOptions(CLI::App& app, BenchRunOptions& o) {
  o.common.AddTo(app);
  app.add_option("--arm", o.arms,
                 "A side of the comparison: a name and options of run, such as off:\"--draft off\" (repeatable)")
      ->type_name("NAME:OPTIONS");
  app.add_option("--inexact", o.inexact, "An arm that may give other tokens (repeatable)")->type_name("NAME");
  app.add_option("--prompts", o.prompts, "Built-in prompts: essay, code, table, long (default: essay,long)")
      ->delimiter(',');
  app.add_option("--prompt-file", o.prompt_files, "A prompt of your own (repeatable)")->type_name("F");
  app.add_option("--lengths", o.lengths, "New tokens of an answer (default: 17,128,512); long: always 1")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", o.rounds,
                 "Runs of each arm, prompt and length (default: 5, or the next multiple of the arms)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--warm-ups", o.warm_ups, "Runs of each arm that do not count, before the first round")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--expect", o.expect, "SHA-256 that the ids of an exact answer must have (repeatable)")
      ->type_name("CASE=SHA256");
  app.add_option("--expect-file", o.expect_file, "An earlier result with the answers that are expected")
      ->type_name("F.json");
  app.add_option("--out", o.out, "Folder for bench.json, bench.md and bench.html")->type_name("DIR");
  app.add_flag("--quick", o.quick, "17 new tokens only, 3 rounds");
  app.add_flag("--drop-caches", o.drop_caches, "Drop the whole page cache before every run (root)");
  app.add_flag("--json", o.json, "One JSON object on stdout instead of a table in Markdown");
}

}  // namespace

Command AddBenchRun(CLI::App& bench) {
  auto o = std::make_shared<BenchRunOptions>();
  CLI::App* app =
      bench.add_subcommand("run", "Cold runs of fixed prompts and lengths, checked, with spread and drive counters");
  AddOptions(*app, *o);
  RefuseEmptyValues(*app);
  return {app, [o, app] { return RunBenchRun(*o, *app); }};
}

}  // namespace deltafin
