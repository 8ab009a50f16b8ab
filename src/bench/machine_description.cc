#include "bench/machine_description.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/machine.h"
#include "base/result.h"
#include "base/topology.h"
#include "base/units.h"

namespace deltafin {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of the first line "name : value".
std::string FieldOf(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (const size_t colon = line.find(':'); colon != std::string::npos && Trimmed(line.substr(0, colon)) == name)
      return Trimmed(line.substr(colon + 1));
  return "";
}

// "24576 kB".
uint64_t MemoryField(const std::string& path, const std::string& name) {
  uint64_t kilobytes = 0;
  std::istringstream(FieldOf(path, name)) >> kilobytes;
  return kilobytes * kKiB;
}

// The word in brackets of "always [madvise] never".
std::string Chosen(const std::string& words) {
  const size_t open = words.find('['), close = words.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? ""
             : words.substr(open + 1, close - open - 1);
}

std::string LimitText(auto which, bool is_bytes) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return is_bytes ? FormatBytes(limit.rlim_cur) : std::to_string(limit.rlim_cur);
}

void DescribeProcessors(const std::string& root, MachineDescription* out) {
  out->processor = FieldOf(root + "/proc/cpuinfo", "model name");
  if (out->processor.empty()) out->processor = FieldOf(root + "/proc/cpuinfo", "Model");  // ARM boards
  const Topology topology = MachineTopology();
  out->processors = static_cast<int>(topology.cpus.size());
  if (topology.quota < static_cast<double>(topology.cpus.size())) out->processor_quota = topology.quota;
  out->governor = FirstLine(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

}  // namespace

MachineDescription DescribeMachine(const ProgramDescription& program, const std::string& root) {
  MachineDescription out;
  out.program = program;
  utsname name{};
  if (uname(&name) == 0) {
    out.system = Cat(name.sysname, " ", name.release);
    out.architecture = name.machine;
  }
  DescribeProcessors(root, &out);
  out.memory_bytes = MemoryField(root + "/proc/meminfo", "MemTotal");
  out.swap_bytes = MemoryField(root + "/proc/meminfo", "SwapTotal");
  out.memory_available_bytes = AvailableMemoryBytes();
  out.huge_pages = Chosen(FirstLine(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  out.limits = {{"locked memory", LimitText(RLIMIT_MEMLOCK, true)}, {"open files", LimitText(RLIMIT_NOFILE, false)}};
  return out;
}

std::optional<double> LoadAverage() {
  double minute = 0;
  if (getloadavg(&minute, 1) != 1) return std::nullopt;
  return minute;
}

std::vector<std::string> MachineDifferences(const MachineDescription& a, const MachineDescription& b) {
  std::vector<std::string> out;
  const auto compare = [&](const char* what, const std::string& left, const std::string& right) {
    if (left != right)
      out.push_back(Cat(what, ": ", left.empty() ? "unknown" : left, " and ", right.empty() ? "unknown" : right));
  };
  compare("processor", a.processor, b.processor);
  compare("architecture", a.architecture, b.architecture);
  compare("processors", std::to_string(a.processors), std::to_string(b.processors));
  compare("memory", FormatBytes(a.memory_bytes), FormatBytes(b.memory_bytes));
  compare("system", a.system, b.system);
  compare("governor", a.governor, b.governor);
  compare("huge pages", a.huge_pages, b.huge_pages);
  compare("version", a.program.version, b.program.version);
  compare("commit", a.program.commit, b.program.commit);
  compare("compiler", a.program.compiler, b.program.compiler);
  compare("build", a.program.build, b.program.build);
  return out;
}

}  // namespace deltafin
