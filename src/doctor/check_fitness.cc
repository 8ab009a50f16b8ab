// Without a model: memory and room on the drives, against what Kimi K3 wants.
#include <algorithm>

#include "base/units.h"
#include "doctor/checks.h"
#include "spec/release_facts.h"

namespace deltafin {
namespace {

// Beside dense weights: a conversation, buffers, some experts. An engine's own plan counts exactly.
constexpr uint64_t kBesideDense = 8 * kGiB;
constexpr size_t kMostNamed = 6;  // drives

void CheckMemoryForRelease(uint64_t memory, Findings& findings) {
  const std::string text =
      Cat(FormatBytes(memory), " of memory; Kimi K3's dense weights are ", FormatBytes(release::kDenseBytes), ", or ",
          FormatBytes(release::kPackedDenseBytes), " in 12 bits");
  if (memory >= release::kDenseBytes + kBesideDense)
    findings.Ok("k3.memory", text + ": they stay in memory");
  else if (memory >= release::kPackedDenseBytes + kBesideDense)
    findings.Note("k3.memory", text + ": they stay in memory in 12 bits only",
                  "those that do not fit are read again for each token",
                  ByAdvice("once the model is here: deltafin pack --dense, then run --dense"));
  else
    findings.Note("k3.memory", text + ": they do not stay in memory",
                  "what does not fit is read again for each token: 7 GB of it are a second on a drive of 7 GB/s",
                  ByCommand("deltafin drives && deltafin plan --this-machine", "how fast that would be"));
}

struct Room {
  std::string text;  // the drives, the roomiest first
  uint64_t most = 0, all = 0;
  std::string roomiest;  // its mount point
};

Room RoomOnDrives(const Host& host) {
  std::vector<std::pair<uint64_t, std::string>> drives;
  for (const MountedDrive& drive : host.Drives()) {
    if (drive.read_only || drive.mount_point.empty()) continue;
    if (const std::optional<SpaceFacts> space = host.Space(drive.mount_point))
      drives.emplace_back(space->free_bytes, drive.mount_point);
  }
  std::sort(drives.begin(), drives.end(), std::greater<>());
  Room room;
  for (size_t d = 0; d < drives.size(); ++d) {
    room.all += drives[d].first;
    if (d < kMostNamed)
      room.text += Cat(d == 0 ? "" : ", ", FormatBytes(drives[d].first), " free at ", drives[d].second);
  }
  if (drives.size() > kMostNamed) room.text += Cat(" and ", drives.size() - kMostNamed, " more drives");
  if (!drives.empty()) {
    room.most = drives[0].first;
    room.roomiest = drives[0].second;
  }
  return room;
}

void CheckRoomForRelease(const Host& host, Findings& findings) {
  const Room room = RoomOnDrives(host);
  if (room.text.empty()) return;
  const std::string text = Cat(room.text, "; Kimi K3 is ", FormatBytes(release::kBytes));
  if (room.most >= release::kBytes)
    findings.Ok("k3.space", text + ": it fits");
  else if (room.all >= release::kBytes && room.most >= release::kDenseOnlyBytes + 2 * release::kLargestShardBytes)
    findings.Note("k3.space", text + ": it fits spread over several drives only",
                  "each expert is then cut over the drives, which is also faster",
                  ByAdvice("setup with --pack-to DIR once for each drive"));
  else if (room.most >= release::kDenseOnlyBytes)
    findings.Note("k3.space",
                  Cat(text, ": there is room for its dense part (", FormatBytes(release::kDenseOnlyBytes), ")"),
                  "experts are then fetched as they are used and kept while there is room: slow at first",
                  ByAdvice("setup with --dense-only; run with --keep-experts SIZE bounds what is kept"));
  else
    findings.Warning(
        "k3.space", Cat(text, ", its dense part alone ", FormatBytes(release::kDenseOnlyBytes), ": there is no room"),
        "nothing of it can be run before there is",
        ByAdvice("add a drive, or free space on one; the bundled k3-nano runs: deltafin run --model k3-nano"));
}

}  // namespace

void CheckFitness(const Subject& subject, Findings& findings) {
  if (subject.has_model()) return;
  const uint64_t available = subject.host.AvailableMemory();
  CheckMemoryForRelease(subject.options.memory.value_or(available), findings);
  CheckRoomForRelease(subject.host, findings);
}

}  // namespace deltafin
