#include "app/plan_machine.h"

#include <cstdio>

#include "app/common_options.h"
#include "base/machine.h"
#include "base/topology.h"
#include "base/units.h"
#include "bench/machine_limits.h"
#include "io/drive_list.h"
#include "io/drive_profile.h"

namespace deltafin {
namespace {

constexpr double kSeconds = 0.6;  // of each measurement

// What a drive takes beyond moving the bytes, in the smallest reads that were measured one at a time.
double FirstByteSeconds(const DriveProfile& profile) {
  double least = 0;
  for (const DriveMeasurement& m : profile.grid) {
    if (m.depth != 1 || m.latency_p50_seconds <= 0 || profile.bytes_per_second <= 0) continue;
    const double beyond = m.latency_p50_seconds - static_cast<double>(m.block_bytes) / profile.bytes_per_second;
    if (beyond > 0 && (least == 0 || beyond < least)) least = beyond;
  }
  return least > 0 ? least : simulate::Drive{}.first_byte_seconds;
}

Status AddDrives(const std::string& state, simulate::Machine& machine, std::vector<std::string>& notes) {
  DFIN_TRY(const std::vector<MountedDrive> mounted, MountedDrives());
  std::vector<std::string> folders;
  for (const MountedDrive& drive : mounted) {
    const std::optional<DriveProfile> profile = LoadDriveProfile(state, drive.identity);
    if (!profile || drive.mount_point.empty()) continue;
    folders.push_back(drive.mount_point);
    machine.drives.push_back(
        {.bytes_per_second = profile->bytes_per_second, .first_byte_seconds = FirstByteSeconds(*profile)});
  }
  // Drives that share something were measured together: those rates count.
  const std::vector<double> together = ProfiledRates(state, folders);
  for (size_t d = 0; d < folders.size(); ++d) {
    if (together[d] > 0) machine.drives[d].bytes_per_second = together[d];
    notes.push_back("drive at " + folders[d] + ": " + FormatRate(machine.drives[d].bytes_per_second) +
                    ", as deltafin drives measured it");
  }
  if (machine.drives.empty())
    return Fail(ErrorCode::kIo, "--this-machine: no mounted drive has a profile in ", state,
                ": run `deltafin drives` first, or describe the machine with --drives and --ram");
  return {};
}

}  // namespace

Result<simulate::Machine> MeasureThisMachine(const std::string& state_dir, std::vector<std::string>& notes) {
  const std::string state = state_dir.empty() ? DefaultStateFolder() : state_dir;
  if (state.empty())
    return Fail(ErrorCode::kInvalidArgument, "--this-machine: no state folder is known: give --state-dir");
  simulate::Machine machine;
  DFIN_TRY_VOID(AddDrives(state, machine, notes));
  machine.ram_bytes = AvailableMemoryBytes();
  DFIN_TRY(const std::unique_ptr<MachineLimits> limits,
           MachineLimits::Create("auto", PlaceThreads(MachineTopology(), 0), true));
  machine.memory_bytes_per_second = limits->ReadBytesPerSecond(kSeconds);
  machine.flops_per_second = limits->FlopsPerSecond(kSeconds);
  char text[160];
  std::snprintf(
      text, sizeof text, "measured just now: memory read at %.1f GB/s, %.0f GFLOP/s; %s of memory may be used",
      machine.memory_bytes_per_second / 1e9, machine.flops_per_second / 1e9, FormatBytes(machine.ram_bytes).c_str());
  notes.push_back(text);
  return machine;
}

}  // namespace deltafin
