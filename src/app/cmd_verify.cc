// `deltafin verify`: whether every expert is what it was, in an expert set or in the shards, and repair of a set.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/commands.h"
#include "app/common_options.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/units.h"
#include "checkpoint/expert_set.h"
#include "pack/verify.h"

namespace deltafin {
namespace {

struct VerifyCommandOptions {
  VerifyOptions verify;
  std::string state_dir;
  bool shards = false, no_state = false, quiet = false;
};

std::string Line(const BadRecord& bad) {
  std::string line;
  if (bad.key.layer >= 0)
    line = Cat("layer ", bad.key.layer, ", expert ", bad.key.expert, bad.replica ? ", second copy" : "", ": ");
  line += bad.file;
  if (bad.bytes > 0) line += Cat(", bytes ", bad.offset, " to ", bad.offset + bad.bytes - 1);
  line += ": " + bad.what;
  if (bad.repaired)
    line += ": repaired " + bad.repair_note;
  else if (!bad.repair_note.empty())
    line += ": not repaired: " + bad.repair_note;
  return Printable(line) + "\n";
}

// What the shards were compared with, and what came of it.
std::string ShardResult(const VerifyReport& r) {
  std::string text;
  if (r.listed)
    text = r.files_bad > 0 ? Cat(r.files_bad, " of ", r.files_compared, " files differ from their listed checksums")
                           : Cat(r.files_compared, " files, each with its listed checksum");
  else if (r.records == 0)
    text = "nothing was checked";
  else
    text = Cat(r.bad > 0 ? Cat(r.bad, " bad") : "no fault found in these",
               r.compared_with_set ? ", each compared with the expert set"
                                   : "; they have no checksums here to compare with (deltafin setup keeps them in "
                                     "deltafin-files.txt)");
  if (r.files_moved > 0) text += Cat("; ", r.files_moved, " shards gave up their experts and were not compared");
  if (r.files_absent > 0) text += Cat("; ", r.files_absent, " listed files are not there");
  return text;
}

// What was checked, what was not, and what came of it.
std::string Summary(const VerifyReport& r, bool shards) {
  std::string text =
      Cat(shards ? "shards: " : "expert set: ", r.records, " experts, ", FormatBytes(r.bytes), " in ",
          FormatSeconds(r.seconds), " (", FormatRate(static_cast<double>(r.bytes) / std::max(r.seconds, 1e-9)), "): ");
  const bool all = r.records_absent == 0 && r.records_partly == 0;
  if (shards)
    text += ShardResult(r);
  else if (r.bad > 0)
    text += Cat(r.bad, " bad, ", r.repaired, " repaired");
  else if (r.records == 0)
    text += "nothing was checked";
  else
    text += all ? "all good" : "no fault found in these";
  if (r.records_absent > 0) text += Cat("; ", r.records_absent, " experts are not in the shards and were not checked");
  if (r.records_partly > 0)
    text += Cat("; ", r.records_partly, " experts were checked only in part, since a drive is missing; ",
                r.records_unreadable, " of them cannot be read without it");
  return text + "\n";
}

Result<VerifyOptions> ToVerifyOptions(const VerifyCommandOptions& o) {
  VerifyOptions options = o.verify;
  const auto refuse = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (o.shards && !options.experts.empty()) return refuse("--shards and --experts: give one of them");
  if (o.no_state && !o.state_dir.empty()) return refuse("--no-state and --state-dir: give one of them");
  if (options.io != "auto" && options.io != "uring" && options.io != "pread")
    return refuse("--io " + options.io + ": expected auto, uring or pread");
  if (!o.no_state) options.state_folder = o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  if (!o.shards && options.experts.empty()) {
    DFIN_TRY(options.experts, FindExpertFolders(options.model, options.state_folder));
  }
  return options;
}

Result<int> RunVerify(const VerifyCommandOptions& o) {
  DFIN_TRY(const VerifyOptions options, ToVerifyOptions(o));
  Terminal terminal;
  const Interrupt interrupt;
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  const int64_t period_ns = terminal.stderr_is_terminal() ? 500'000'000 : 10'000'000'000;
  int64_t last = start;
  const auto progress = [&](uint64_t done, uint64_t total) {
    const int64_t now = clock.NowNs();
    if (o.quiet || now - last < period_ns) return;
    last = now;
    const double rate = static_cast<double>(done) / SecondsBetween(start, now);
    terminal.ShowStatus(Cat("verifying  ", FormatBytes(done), "/", FormatBytes(total), "  ", FormatRate(rate), "  ",
                            FormatSeconds(static_cast<double>(total - std::min(done, total)) / rate), " left"));
  };
  const auto on_bad = [&](const BadRecord& bad) { terminal.Write(Line(bad)); };
  Result<VerifyReport> report = Verify(options, on_bad, progress, interrupt.token());
  terminal.EndLine();
  if (!report) return Failure(std::move(report.error()));
  DFIN_TRY_VOID(terminal.StdoutStatus());
  for (const std::string& note : report->notes) terminal.WriteNote("deltafin: note: " + Printable(note) + "\n");
  const uint64_t left = report->bad - report->repaired;
  if (!o.quiet) terminal.WriteNote(Summary(*report, options.experts.empty()));
  return left == 0 ? kExitDone : kExitFaultsFound;
}

}  // namespace

Command AddVerify(CLI::App& root) {
  auto o = std::make_shared<VerifyCommandOptions>();
  CLI::App* app = root.add_subcommand("verify", "Read every expert and name those that are damaged");
  app->add_option("--model", o->verify.model, "Folder of the checkpoint")->required()->type_name("DIR");
  app->add_option("--experts", o->verify.experts, "Folders of the expert set (default: as pack noted it; else shards)")
      ->type_name("DIR");
  app->add_flag("--shards", o->shards, "Verify the experts in the shards although there is an expert set");
  app->add_flag("--repair", o->verify.repair, "Rewrite what is wrong, from second copies or the shards");
  app->add_option("--io", o->verify.io, "Reading engine: auto, uring or pread");
  app->add_option("--state-dir", o->state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Keep nothing between runs");
  app->add_flag("--quiet", o->quiet, "No progress and no summary on stderr");
  return {app, [o] { return RunVerify(*o); }};
}

}  // namespace deltafin
