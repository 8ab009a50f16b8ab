// The state folder: can it be written, whose is it, are drive profiles there and of use.
#include "doctor/checks.h"
#include "io/drive_profile.h"

namespace deltafin {
namespace {

// `deltafin drives` does not read less than this of a model's files (app/drive_choice.cc): and then some for the
// others.
constexpr uint64_t kLeastToMeasure = uint64_t{1} << 30;
constexpr int64_t kOldProfileSeconds = int64_t{180} * 24 * 3600;

// Reads what lies there; a model too small for that needs a test file.
Remedy MeasureCommand(const Subject& subject, const NamedFolder& folder) {
  const uint64_t bytes = subject.report ? subject.report->dense_bytes + subject.report->expert_bytes : 0;
  if (bytes < kLeastToMeasure)
    return ByCommand(Cat("deltafin drives ", Quoted(folder.path)),
                     "the model is too small to be measured by: a test file is written into that folder and removed");
  std::string command = Cat("deltafin drives --model ", Quoted(subject.options.model));
  for (const std::string& experts : subject.experts) command += Cat(" --experts ", Quoted(experts));
  return ByCommand(std::move(command));
}

void CheckProfile(const Subject& subject, const NamedFolder& folder, Findings& findings) {
  const Result<MountedDrive> drive = subject.host.DriveOf(folder.path);
  if (!drive) return;
  std::string problem;
  const std::optional<DriveProfile> profile = LoadDriveProfile(subject.options.state_folder, drive->identity, &problem);
  const std::string what = Cat(drive->device, ", under ", folder.role, " folder ", folder.path);
  if (!problem.empty())
    findings.Warning("profile.damaged", problem, "the drive counts as not measured", MeasureCommand(subject, folder));
  else if (!profile)
    findings.Note("profile.none", what + ": not measured",
                  "reads start with cautious sizes, and pack gives every drive an equal share",
                  MeasureCommand(subject, folder));
  else if (const int64_t age = subject.host.UnixSeconds() - profile->measured_unix_seconds; age > kOldProfileSeconds)
    findings.Warning("profile.stale", Cat(what, ": measured ", age / (24 * 3600), " days ago"),
                     "drives get slower when they fill or move to another port; shares follow the old rate",
                     MeasureCommand(subject, folder));
  else
    findings.Ok("profile.fresh", what + ": measured");
}

}  // namespace

void CheckState(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  const std::string& folder = subject.options.state_folder;
  if (folder.empty()) {
    findings.Note("state.none", "no state folder", "every start reads all headers again, and nothing is kept");
    return;
  }
  const PathFacts facts = host.Look(folder);
  const std::string nearest = NearestFolder(host, folder);
  const bool exists = facts.kind == PathFacts::Kind::kFolder;
  const std::string what = Cat("state folder ", folder, exists ? "" : " (not made yet)");
  if (!host.MayWrite(nearest))
    findings.Fault("state.not-writable", Cat(what, ": user ", host.UserId(), " cannot write ", nearest),
                   "sessions, drive profiles and the header index cannot be kept",
                   ByCommand(Cat("sudo chown -R ", host.UserId(), " ", Quoted(nearest)),
                             "or name another with --state-dir, or give --no-state"));
  else if (exists && facts.owner != host.UserId())
    findings.Warning(
        "state.wrong-owner", Cat(what, " belongs to user ", facts.owner, ", not to ", host.UserId()),
        "files made there now cannot be changed by its owner later, nor the other way round",
        ByCommand(Cat("sudo chown -R ", host.UserId(), " ", Quoted(folder)), Cat("or run as user ", facts.owner)));
  else
    findings.Ok("state.writable", what);
  if (exists && (facts.mode & 0002) != 0)
    findings.Warning("state.writable-by-others", what, "any user of this machine can change kept conversations",
                     ByCommand(Cat("chmod o-w ", Quoted(folder))));
  if (!exists) return;
  for (const NamedFolder& read : FoldersOf(subject))
    if (read.role != "state" && host.Look(read.path).kind == PathFacts::Kind::kFolder)
      CheckProfile(subject, read, findings);
}

}  // namespace deltafin
