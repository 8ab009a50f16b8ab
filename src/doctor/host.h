// Host: what doctor asks the machine, apart from what is in the model's own files.
//
// SystemHost() asks the system that this program runs on; tests plant faults with hosts of their own. Nothing is
// changed by asking. Answers that the system does not give are empty: then there is no finding either. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/drive_list.h"

namespace deltafin {

struct PathFacts {
  enum class Kind : uint8_t { kAbsent, kFolder, kFile, kOther };
  Kind kind = Kind::kAbsent;
  uint32_t owner = 0;  // user id
  uint32_t mode = 0;   // permission bits
  uint64_t bytes = 0;
  uint64_t allocated_bytes = 0;  // on the drive; less than `bytes` where there are holes
};

struct SpaceFacts {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // for this user
};

enum class HostLimit : uint8_t { kOpenFiles, kLockedBytes, kAddressSpace };
inline constexpr uint64_t kNoHostLimit = std::numeric_limits<uint64_t>::max();

class Host {
 public:
  virtual ~Host() = default;

  // A small file of the kernel (/proc, /sys), without the newline at its end.
  virtual std::optional<std::string> KernelText(const std::string& path) const = 0;
  virtual std::string KernelName() const = 0;     // "Linux"
  virtual std::string KernelRelease() const = 0;  // "6.1.0-18-amd64"
  // Instruction sets that this program can use here, best first, in the spelling of --isa.
  virtual std::vector<std::string> InstructionSets() const = 0;
  virtual int PhysicalProcessors() const = 0;  // that are online
  virtual int UsableThreads() const = 0;       // one for each fast core that we may use
  virtual uint64_t AvailableMemory() const = 0;
  // What the control groups leave of it; kNoHostLimit when they limit nothing.
  virtual uint64_t ControlGroupMemory() const = 0;
  virtual uint64_t Limit(HostLimit limit) const = 0;
  // Why io_uring cannot be used here.
  virtual Status UringWorks() const = 0;

  virtual uint32_t UserId() const = 0;
  virtual PathFacts Look(const std::string& path) const = 0;
  virtual bool MayRead(const std::string& path) const = 0;
  // And, of a folder, make files in it.
  virtual bool MayWrite(const std::string& path) const = 0;
  virtual Result<MountedDrive> DriveOf(const std::string& folder) const = 0;
  virtual std::vector<MountedDrive> Drives() const = 0;  // that are mounted
  virtual std::optional<SpaceFacts> Space(const std::string& folder) const = 0;
  // What direct reads of the file must be aligned to; 0: the file system refuses them.
  virtual Result<uint64_t> DirectAlignment(const std::string& file) const = 0;
  virtual int64_t UnixSeconds() const = 0;
};

// Lives as long as the program.
const Host& SystemHost();

}  // namespace deltafin
