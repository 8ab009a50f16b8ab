// What lies under each folder: is it mounted, is it a fast drive, does it read directly, is there room.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/units.h"
#include "doctor/checks.h"
#include "pack/disk.h"
#include "pack/set_files.h"

namespace deltafin {
namespace {

namespace fs = std::filesystem;

constexpr std::array kNetworkFileSystems = {"nfs",         "nfs4",      "cifs",           "smb3",   "smbfs", "9p",
                                            "ceph",        "glusterfs", "fuse.sshfs",     "lustre", "afs",   "virtiofs",
                                            "fuse.rclone", "fuse.s3fs", "fuse.glusterfs", "beegfs"};
constexpr uint64_t kLargestAlignment = 4096;
constexpr uint64_t kStateFull = 64 * kMiB;
constexpr uint64_t kStateLow = 2 * kGiB;

template <typename List>
bool Has(const List& list, const std::string& text) {
  return std::any_of(list.begin(), list.end(), [&](const char* entry) { return text == entry; });
}

Remedy Mended(const Subject& subject, const NamedFolder& folder) {
  if (folder.role == "experts")
    return ByAdvice(subject.experts_noted
                        ? "mount the drive; if the set is elsewhere now, name its folders with --experts"
                        : "mount the drive, or name the folders of the set with --experts");
  if (folder.role == "dense") return ByAdvice("mount the drive, or name the folder that `deltafin pack --dense` wrote");
  return ByAdvice("mount the drive, or name the folder that holds config.json with --model");
}

// False when there is nothing more to say about the folder.
bool CheckPresence(const Subject& subject, const NamedFolder& folder, Findings& findings) {
  const PathFacts facts = subject.host.Look(folder.path);
  const std::string what = folder.role + " folder " + folder.path;
  if (folder.role == "state" && facts.kind == PathFacts::Kind::kAbsent) return true;
  const std::string noted = folder.role == "experts" && subject.experts_noted ? ", which pack noted," : "";
  if (facts.kind == PathFacts::Kind::kAbsent) {
    findings.Fault(folder.role == "experts" ? "drive.unmounted" : folder.role + ".not-found",
                   what + noted + " is not there", "nothing can be read from it", Mended(subject, folder));
    return false;
  }
  if (facts.kind != PathFacts::Kind::kFolder) {
    findings.Fault(folder.role + ".not-a-folder", what + " is not a folder", "nothing can be read from it",
                   Mended(subject, folder));
    return false;
  }
  if (folder.role == "state" || !subject.host.MayRead(folder.path)) return true;
  std::error_code failed;
  if (!fs::is_empty(folder.path, failed) || failed) return true;
  findings.Fault(folder.role == "experts" ? "drive.unmounted" : folder.role + ".empty", what + noted + " is empty",
                 "an empty folder is what a drive that is not mounted leaves", Mended(subject, folder));
  return false;
}

void CheckKindOfDrive(const Subject& subject, const NamedFolder& folder, const MountedDrive& drive,
                      Findings& findings) {
  const Host& host = subject.host;
  const std::string& model = subject.options.model;
  const std::string what = Cat(folder.role, " folder ", folder.path);
  if (Has(kNetworkFileSystems, drive.file_system))
    findings.Warning("drive.network", Cat(what, " is on a network file system (", drive.file_system, ")"),
                     "every token waits for reads from it, at the network's rate and delay",
                     ByAdvice("copy the files to a drive of this machine"));
  else if (drive.file_system == "tmpfs" || drive.file_system == "ramfs")
    findings.Warning("drive.in-memory", Cat(what, " is in memory (", drive.file_system, ")"),
                     "its files take memory that a run could use for experts, and are gone after a restart",
                     ByAdvice("keep them on an SSD"));
  const std::string queue = "/sys/block/" + drive.device + "/queue/rotational";
  // A virtual disk says what its host left at the default.
  const bool is_virtual = drive.device.starts_with("vd") || drive.device.starts_with("xvd");
  if (drive.block_device && !is_virtual && host.KernelText(queue) == "1" && folder.role != "state")
    findings.Warning("drive.rotational", Cat(what, " is on a spinning disk (", drive.device, ")"),
                     "experts are read in pieces all over the drive: a hundred times slower than from an SSD",
                     ByAdvice(Cat("move the files to an SSD; the experts alone: deltafin pack --model ", Quoted(model),
                                  " --to DIR")));
  if (drive.block_device && host.KernelText("/sys/block/" + drive.device + "/removable") == "1")
    findings.Note("drive.removable", Cat(what, " is on a removable drive (", drive.device, ")"),
                  "a run ends if it is unplugged, unless all experts have second copies (pack --replicas)");
  if (drive.read_only && folder.role == "state")
    findings.Fault("state.read-only", Cat(what, " is on a drive that is mounted read-only (", drive.mount_point, ")"),
                   "nothing can be kept between runs",
                   ByAdvice("name another folder with --state-dir, or give --no-state"));
}

// Through one file of the folder: file systems decide by file.
void CheckDirectReads(const Subject& subject, const NamedFolder& folder, const MountedDrive& drive,
                      Findings& findings) {
  const std::string what = Cat(folder.role, " folder ", folder.path);
  for (const std::string& file : FilesOf(subject, folder)) {
    if (subject.host.Look(file).kind != PathFacts::Kind::kFile || file.ends_with(".json")) continue;
    const Result<uint64_t> alignment = subject.host.DirectAlignment(file);
    if (!alignment) continue;  // said by other checks
    if (*alignment == 0)
      findings.Warning("drive.no-direct-io", Cat(what, ": ", drive.file_system, " refuses direct reads"),
                       "reads go through the page cache: slower, and its memory is not in the plan",
                       ByAdvice("keep the files on ext4, xfs or btrfs, not on an overlay or tmpfs"));
    else if (*alignment > kLargestAlignment)
      findings.Warning("drive.alignment", Cat(what, ": direct reads in blocks of ", *alignment, " bytes"),
                       "every read of an expert is widened to whole blocks; an expert set packed for smaller pages "
                       "cannot be used",
                       ByAdvice("format the drive with blocks of 4096 bytes, or pack onto another one"));
    else
      findings.Ok("drive.direct-io", Cat(what, ": direct reads aligned to ", *alignment, " bytes"));
    return;
  }
}

void CheckSpace(const Host& host, const NamedFolder& folder, Findings& findings) {
  const std::optional<SpaceFacts> space = host.Space(NearestFolder(host, folder.path));
  if (!space || space->total_bytes == 0) return;
  const std::string text = Cat(folder.role, " folder ", folder.path, ": ", FormatBytes(space->free_bytes), " free of ",
                               FormatBytes(space->total_bytes));
  if (folder.role != "state") {
    if (space->free_bytes < space->total_bytes / 100)
      findings.Note("space.drive-full", text, "nothing is written there by a run; packing and setup need room");
    return;
  }
  const Remedy fix = ByAdvice("free some space there, name another folder with --state-dir, or give --no-state");
  if (space->free_bytes < kStateFull)
    findings.Fault("space.full", text, "sessions, profiles and the header index cannot be written", fix);
  else if (space->free_bytes < kStateLow)
    findings.Warning("space.low", text, "kept sessions and prompts may not find room", fix);
  else
    findings.Ok("space.enough", text);
}

struct PlacedFolder {
  std::string path, drive;  // the identity of the drive
};

void CheckSharedDrives(const Subject& subject, const std::vector<PlacedFolder>& folders, Findings& findings) {
  std::map<std::string, std::string> first_of;  // by drive
  std::string shared, command = Cat("deltafin pack --rebalance --model ", Quoted(subject.options.model));
  for (const PlacedFolder& folder : folders) {
    const auto [it, is_new] = first_of.try_emplace(folder.drive, folder.path);
    if (is_new)
      command += Cat(" --to ", Quoted(folder.path));
    else
      shared += Cat(shared.empty() ? "" : "; ", folder.path, " is on one drive with ", it->second);
  }
  if (shared.empty()) return;
  if (!subject.experts_noted)
    for (const PlacedFolder& folder : folders) command += Cat(" --experts ", Quoted(folder.path));
  findings.Note("drive.shared", shared, "folders on one drive share its rate: no faster than one folder there",
                ByCommand(std::move(command), "or move one of them to a drive of its own"));
}

}  // namespace

void CheckDrives(const Subject& subject, Findings& findings) {
  std::vector<PlacedFolder> of_experts;
  for (const NamedFolder& folder : FoldersOf(subject)) {
    if (!CheckPresence(subject, folder, findings)) continue;
    const Result<MountedDrive> drive = subject.host.DriveOf(NearestFolder(subject.host, folder.path));
    if (drive) {
      std::string text = Cat(folder.role, " folder ", folder.path, ": ", drive->device);
      if (!drive->model.empty()) text += " (" + drive->model + ")";
      if (!drive->mount_point.empty()) text += ", " + drive->file_system + " at " + drive->mount_point;
      findings.Ok("drive.mounted", text);
      CheckKindOfDrive(subject, folder, *drive, findings);
      if (folder.role != "state") CheckDirectReads(subject, folder, *drive, findings);
      if (folder.role == "experts") of_experts.push_back({folder.path, drive->identity});
    }
    CheckSpace(subject.host, folder, findings);
  }
  CheckSharedDrives(subject, of_experts, findings);
}

}  // namespace deltafin
