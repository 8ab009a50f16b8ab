// Limits of the process: open files, locked memory, address space.
#include "base/units.h"
#include "doctor/checks.h"

namespace deltafin {
namespace {

// Besides weights: standard streams, state, sockets of the server.
constexpr uint64_t kOtherFiles = 64;
// What an io_uring of the engine's depth takes on kernels that count it: rings of 512 entries, 64 KiB, twice over.
constexpr uint64_t kRingBytes = 256 * kKiB;

uint64_t FilesNeeded(const Subject& subject) {
  uint64_t files = kOtherFiles;
  for (const NamedFolder& folder : FoldersOf(subject)) files += FilesOf(subject, folder).size();
  return files;
}

}  // namespace

void CheckLimits(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  const uint64_t open_files = host.Limit(HostLimit::kOpenFiles), needed = FilesNeeded(subject);
  if (open_files < needed)
    findings.Fault("nofile.low", Cat("at most ", open_files, " open files, ", needed, " are needed"),
                   "every shard and every file of an expert set is open during a run",
                   ByCommand(Cat("ulimit -n ", needed * 2), "of a service: LimitNOFILE="));
  else
    findings.Ok("nofile.enough",
                open_files == kNoHostLimit ? "no limit of open files" : Cat("at most ", open_files, " open files"));
  const uint64_t locked = host.Limit(HostLimit::kLockedBytes);
  if (locked < kRingBytes)
    findings.Warning(
        "memlock.low", Cat("at most ", FormatBytes(locked), " of locked memory"),
        "kernels before 5.12 count io_uring's queues as locked memory and refuse them: reads then go "
        "through threads, slower",
        ByCommand("ulimit -l 8192", "of a service: LimitMEMLOCK=8M; for good: memlock in /etc/security/limits.conf"));
  else
    findings.Ok("memlock.enough", locked == kNoHostLimit ? "no limit of locked memory"
                                                         : Cat("at most ", FormatBytes(locked), " of locked memory"));
  const uint64_t space = host.Limit(HostLimit::kAddressSpace);
  if (space != kNoHostLimit)
    findings.Warning("address-space.limited", Cat("at most ", FormatBytes(space), " of address space (ulimit -v)"),
                     "a run reserves more addresses than it fills with memory, and plans with what is left of them",
                     ByCommand("ulimit -v unlimited"));
}

}  // namespace deltafin
