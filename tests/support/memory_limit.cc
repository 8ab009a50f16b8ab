#include "support/memory_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace deltafin::test {
namespace {

constexpr uint64_t kAddressSpaceAllowance = uint64_t{1} << 30;  // libraries, stacks, alignment of mappings

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.flush();
  return out.good();
}

// A folder with a limit in it, or "".
std::string MakeCgroup(const std::string& parent, const char* limit_file, uint64_t bytes) {
  const std::string folder = parent + "/deltafin-test-" + std::to_string(getpid());
  if (mkdir(folder.c_str(), 0755) != 0) return "";
  if (WriteFile(folder + "/" + limit_file, std::to_string(bytes))) return folder;
  rmdir(folder.c_str());
  return "";
}

}  // namespace

MemoryLimit::MemoryLimit(uint64_t bytes) : bytes_(bytes) {
  folder_ = MakeCgroup("/sys/fs/cgroup/memory", "memory.limit_in_bytes", bytes);
  if (folder_.empty()) folder_ = MakeCgroup("/sys/fs/cgroup", "memory.max", bytes);
}

MemoryLimit::~MemoryLimit() {
  if (!folder_.empty()) rmdir(folder_.c_str());
}

std::function<void()> MemoryLimit::Enter() const {
  return [bytes = bytes_, folder = folder_] {
    if (!folder.empty() && WriteFile(folder + "/cgroup.procs", std::to_string(getpid()))) return;
    const rlimit limit{bytes + kAddressSpaceAllowance, bytes + kAddressSpaceAllowance};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(126);
  };
}

}  // namespace deltafin::test
