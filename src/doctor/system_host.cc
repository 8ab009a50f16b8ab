// SystemHost: the machine that this program runs on.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include "backend/cpu/cpu_isa.h"
#include "base/cgroup.h"
#include "base/machine.h"
#include "base/topology.h"
#include "doctor/host.h"
#include "io/direct_file.h"
#include "io/io_engine.h"

namespace deltafin {
namespace {

constexpr std::streamsize kMostKernelText = 64 << 10;

class TheSystem final : public Host {
 public:
  std::optional<std::string> KernelText(const std::string& path) const override {
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    std::string text(static_cast<size_t>(kMostKernelText), '\0');
    in.read(text.data(), kMostKernelText);
    text.resize(static_cast<size_t>(in.gcount()));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

  std::string KernelName() const override { return Name().sysname; }
  std::string KernelRelease() const override { return Name().release; }

  std::vector<std::string> InstructionSets() const override {
    std::vector<std::string> usable;
    for (const char* name : {"avx512_vnni", "avx512", "avx2", "neon"})
      if (cpu::SelectIsa(name)) usable.push_back(name);
    return usable;
  }
  int PhysicalProcessors() const override { return static_cast<int>(std::thread::hardware_concurrency()); }
  int UsableThreads() const override { return DefaultThreads(); }
  uint64_t AvailableMemory() const override { return AvailableMemoryBytes(); }
  uint64_t ControlGroupMemory() const override {
    const uint64_t room = CgroupMemoryRoom("/proc/self/cgroup", "/sys/fs/cgroup");
    return room == kNoCgroupLimit ? kNoHostLimit : room;
  }

  uint64_t Limit(HostLimit limit) const override {
    rlimit value{};
    const int failed = limit == HostLimit::kOpenFiles     ? getrlimit(RLIMIT_NOFILE, &value)
                       : limit == HostLimit::kLockedBytes ? getrlimit(RLIMIT_MEMLOCK, &value)
                                                          : getrlimit(RLIMIT_AS, &value);
    return failed != 0 || value.rlim_cur == RLIM_INFINITY ? kNoHostLimit : uint64_t{value.rlim_cur};
  }

  Status UringWorks() const override {
    Result<std::unique_ptr<IoEngine>> engine = CreateIoEngine({.kind = "uring", .depth = 256});
    if (!engine) return Failure(std::move(engine.error()));
    return {};
  }

  uint32_t UserId() const override { return geteuid(); }

  PathFacts Look(const std::string& path) const override {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return {};
    PathFacts facts;
    facts.kind = S_ISDIR(info.st_mode)   ? PathFacts::Kind::kFolder
                 : S_ISREG(info.st_mode) ? PathFacts::Kind::kFile
                                         : PathFacts::Kind::kOther;
    facts.owner = info.st_uid;
    facts.mode = info.st_mode & 07777;
    facts.bytes = static_cast<uint64_t>(info.st_size);
    facts.allocated_bytes = static_cast<uint64_t>(info.st_blocks) * 512;
    return facts;
  }
  bool MayRead(const std::string& path) const override {
    const int wanted = Look(path).kind == PathFacts::Kind::kFolder ? R_OK | X_OK : R_OK;
    return access(path.c_str(), wanted) == 0;
  }
  bool MayWrite(const std::string& path) const override {
    const int wanted = Look(path).kind == PathFacts::Kind::kFolder ? W_OK | X_OK : W_OK;
    return access(path.c_str(), wanted) == 0;
  }

  Result<MountedDrive> DriveOf(const std::string& folder) const override { return DriveOfFolder(folder); }

  std::vector<MountedDrive> Drives() const override {
    Result<std::vector<MountedDrive>> drives = MountedDrives();
    return drives ? std::move(*drives) : std::vector<MountedDrive>();
  }

  std::optional<SpaceFacts> Space(const std::string& folder) const override {
    struct statvfs space {};
    if (statvfs(folder.c_str(), &space) != 0) return std::nullopt;
    return SpaceFacts{uint64_t{space.f_blocks} * space.f_frsize, uint64_t{space.f_bavail} * space.f_frsize};
  }

  Result<uint64_t> DirectAlignment(const std::string& file) const override {
    DFIN_TRY(const DirectFile opened, DirectFile::Open(file));
    return opened.buffered() ? 0 : opened.alignment();
  }

  int64_t UnixSeconds() const override { return static_cast<int64_t>(std::time(nullptr)); }

 private:
  static utsname Name() {
    utsname name{};
    uname(&name);
    return name;
  }
};

}  // namespace

const Host& SystemHost() {
  static const TheSystem host;
  return host;
}

}  // namespace deltafin
