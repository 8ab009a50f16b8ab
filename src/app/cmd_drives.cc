// `deltafin drives`: finds and measures drives, and keeps the results for pack and the engine.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "app/choices.h"
#include "app/commands.h"
#include "app/common_options.h"
#include "app/drive_choice.h"
#include "app/drives_report.h"
#include "app/exit_code.h"
#include "app/interrupt.h"
#include "app/terminal.h"
#include "base/units.h"

namespace deltafin {
namespace {

struct DrivesOptions {
  std::vector<std::string> folders, experts;
  std::string model, size = "4GiB", io = "auto", state_dir;
  double seconds = 12;
  bool json = false, quiet = false, no_state = false;
};

DriveRequest RequestOf(const DrivesOptions& o) {
  DriveRequest request;
  request.folders = o.folders;
  request.read_folders = o.experts;
  if (!o.model.empty()) request.read_folders.push_back(o.model);
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') request.fallbacks.push_back(home);
  request.fallbacks.push_back(".");
  return request;
}

Result<ProbeOptions> ProbeOptionsOf(const DrivesOptions& o) {
  ProbeOptions options;
  options.seconds = o.seconds;
  options.io = o.io;
  DFIN_TRY_VOID(CheckChoice("--io", o.io));
  Result<uint64_t> size = ParseSize(o.size);
  if (!size) return FailWith(std::move(size), "--size");
  options.test_file_bytes = *size;
  return options;
}

// Old profiles that cannot be used are replaced; the user hears of it.
void NoteDamagedProfiles(const std::string& state, const DriveChoice& choice, std::vector<std::string>* notes) {
  for (const ProbeTarget& target : choice.targets) {
    std::string problem;
    LoadDriveProfile(state, target.drive.identity, &problem);
    if (!problem.empty()) notes->push_back("profile ignored: " + problem);
  }
}

void StoreProfiles(const std::string& state, const ProbeReport& report, std::vector<std::string>* notes) {
  if (state.empty()) {
    notes->push_back("nothing was kept: no state folder");
    return;
  }
  for (const ProbedDrive& drive : report.drives) {
    const Status stored = StoreDriveProfile(state, drive.profile);
    if (!stored) notes->push_back("profile not kept: " + stored.error().message());
  }
}

void NoteFindings(const ProbeReport& report, std::vector<std::string>* notes) {
  for (const ProbedDrive& d : report.drives) {
    if (!d.direct_possible)
      notes->push_back(d.folder + ": its file system has no direct reads: every figure is buffered");
    if (d.buffered_cached) notes->push_back(d.folder + ": buffered reads came from a cache; their rate was not used");
  }
}

Failure NothingToMeasure(const DriveChoice& choice) {
  std::string text = "no drive can be measured:";
  for (const SkippedDrive& skipped : choice.skipped) text += Cat("\n  ", skipped.folder, ": ", skipped.reason);
  return Fail(choice.skipped.front().code, text,
              "\na folder that may be written will do, for a test file that is removed again: deltafin drives FOLDER");
}

Result<int> RunDrives(const DrivesOptions& o) {
  if (o.no_state && !o.state_dir.empty())
    return Fail(ErrorCode::kInvalidArgument, "--no-state and --state-dir: give one of them");
  DFIN_TRY(const ProbeOptions options, ProbeOptionsOf(o));
  const std::string state = o.no_state ? "" : o.state_dir.empty() ? DefaultStateFolder() : o.state_dir;
  DFIN_TRY(const DriveChoice choice, ChooseDrives(RequestOf(o)));
  if (choice.targets.empty() && !choice.skipped.empty()) return NothingToMeasure(choice);
  std::vector<std::string> notes;
  NoteDamagedProfiles(state, choice, &notes);

  Terminal terminal;
  const Interrupt interrupt;
  const bool show = !o.quiet && terminal.stderr_is_terminal();
  const auto progress = [&](const std::string& what) {
    if (show) terminal.ShowStatus("measuring  " + Printable(what));
  };
  if (!o.quiet && !show)
    terminal.WriteNote(Cat("measuring ", choice.targets.size(), choice.targets.size() == 1 ? " drive\n" : " drives\n"));
  DFIN_TRY(ProbeReport report, ProbeDrives(choice.targets, options, progress, interrupt.token()));
  terminal.ClearStatus();
  report.skipped.insert(report.skipped.begin(), choice.skipped.begin(), choice.skipped.end());
  if (!o.no_state) StoreProfiles(state, report, &notes);
  NoteFindings(report, &notes);

  const std::string text = o.json ? DrivesJson(report, notes) : DrivesTable(report);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Fail(ErrorCode::kIo, "stdout: the report could not be written: ", std::strerror(errno));
  if (!o.quiet)
    for (const std::string& note : notes) terminal.WriteNote(Printable(note) + "\n");
  if (!report.drives.empty()) return kExitDone;
  if (report.skipped.empty()) return Fail(ErrorCode::kNotFound, "no drive found: name a folder on one");
  return ToExitCode(report.skipped.front().code);
}

}  // namespace

Command AddDrives(CLI::App& root) {
  auto o = std::make_shared<DrivesOptions>();
  CLI::App* app = root.add_subcommand("drives", "Measure drives and keep the results for pack and run");
  app->add_option("folders,--folder", o->folders,
                  "Folders to measure, one a drive; a test file is written to each and removed (default: every drive "
                  "that is mounted and may be written)")
      ->type_name("DIR");
  app->add_option("--model", o->model, "Measure the drives of this model by reading its shards")->type_name("DIR");
  app->add_option("--experts", o->experts, "Measure the drives of this expert set by reading its files")
      ->type_name("DIR");
  app->add_option("--seconds", o->seconds, "Time of reading, a drive")->check(CLI::Range(1.0, 3600.0));
  app->add_option("--size", o->size, "Size of a test file; larger ones measure fast drives better")->type_name("SIZE");
  app->add_option("--io", o->io, "Reading engine: auto, uring or pread");
  app->add_option("--state-dir", o->state_dir, "Folder for what is kept between runs")->type_name("DIR");
  app->add_flag("--no-state", o->no_state, "Keep no profiles");
  app->add_flag("--quiet", o->quiet, "No progress and no notes on stderr");
  app->add_flag("--json", o->json, "One JSON object");
  return {app, [o] { return RunDrives(*o); }};
}

}  // namespace deltafin
