// Memory that a run can take, what limits it, swap and huge pages. Whether it is enough: check_start.cc.
#include <algorithm>
#include <charconv>

#include "base/units.h"
#include "doctor/checks.h"

namespace deltafin {
namespace {

constexpr uint64_t kSwapWorthSaying = 64 * kMiB;
constexpr uint64_t kSwapIsMuch = kGiB;

// "Key:   123 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> Field(const std::string& text, const std::string& key) {
  const std::string wanted = "\n" + key + ":";
  const std::string lines = "\n" + text;
  const size_t at = lines.find(wanted);
  if (at == std::string::npos) return std::nullopt;
  const size_t digits = lines.find_first_not_of(" \t", at + wanted.size());
  if (digits == std::string::npos) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(lines.data() + digits, lines.data() + lines.size(), value);
  if (error != std::errc() || value > (kNoHostLimit >> 10)) return std::nullopt;
  return value * 1024;
}

void CheckSwap(const Host& host, const std::string& meminfo, Findings& findings) {
  const uint64_t total = Field(meminfo, "SwapTotal").value_or(0);
  const uint64_t free = Field(meminfo, "SwapFree").value_or(0);
  const uint64_t used = total - std::min(total, free);
  const std::string swaps = host.KernelText("/proc/swaps").value_or("");
  const bool compressed = swaps.find("/dev/zram") != std::string::npos;
  const std::string where = compressed ? "compressed memory (zram)" : "disk";
  if (used >= kSwapIsMuch)
    findings.Warning(
        "swap.used", FormatBytes(used) + " of other programs' memory is swapped to " + where,
        compressed ? "it was moved there because memory is short, and it still takes some"
                   : "memory is short, and reads of swap compete with those of experts",
        ByCommand("sudo swapoff -a && sudo swapon -a", "first end what you do not need, or give a smaller --memory"));
  else if (compressed && used >= kSwapWorthSaying)
    findings.Note("swap.zram", FormatBytes(used) + " are swapped to " + where,
                  "pages of a run that go there are decompressed by the processor that should compute",
                  ByAdvice("give a smaller --memory if it grows during a run"));
  else if (total > 0)
    findings.Ok("swap.free", Cat(FormatBytes(used), " of ", FormatBytes(total), " swap used"));
}

void CheckHugePages(const Host& host, Findings& findings) {
  const std::optional<std::string> text = host.KernelText("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!text) return;
  const size_t open = text->find('['), close = text->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  const std::string mode = text->substr(open + 1, close - open - 1);
  if (mode == "never")
    findings.Warning("hugepages.off", "transparent huge pages are switched off",
                     "weights are read through many more page table entries: slower arithmetic",
                     ByCommand("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"));
  else
    findings.Ok("hugepages.on", "transparent huge pages: " + mode);
}

}  // namespace

void CheckMemory(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  const std::string meminfo = host.KernelText("/proc/meminfo").value_or("");
  const uint64_t available = host.AvailableMemory();
  const uint64_t total = Field(meminfo, "MemTotal").value_or(0);
  const uint64_t group = host.ControlGroupMemory();
  std::string text = FormatBytes(available) + " available";
  if (total > 0) text += Cat(" of ", FormatBytes(total));
  if (group != kNoHostLimit && (total == 0 || group < total / 10 * 9))
    findings.Note("memory.cgroup", Cat(text, "; a control group leaves ", FormatBytes(group)),
                  "a run is kept within it, and ended by the system if it were not",
                  ByAdvice("raise the container's memory limit (docker run --memory, or MemoryMax= of the service)"));
  else
    findings.Ok("memory.available", text);
  if (subject.options.memory && *subject.options.memory > available)
    findings.Warning(
        "memory.over-asked", Cat("--memory ", FormatBytes(*subject.options.memory), " is more than is available"),
        "a run would swap, or be ended by the system", ByAdvice("give a smaller --memory, or leave it out"));
  if (!meminfo.empty()) CheckSwap(host, meminfo, findings);
  CheckHugePages(host, findings);
  if (host.KernelText("/proc/sys/vm/overcommit_memory") == "2")
    findings.Warning("memory.strict-overcommit", "the system promises no more memory than it has (overcommit 2)",
                     "large areas that a run reserves and fills slowly may be refused",
                     ByCommand("sudo sysctl vm.overcommit_memory=0"));
}

}  // namespace deltafin
