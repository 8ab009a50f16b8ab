// The kernel's version and its ways of reading.
#include <charconv>

#include "doctor/checks.h"

namespace deltafin {
namespace {

// Major and minor number of a release such as "6.1.0-18-amd64"; zeros where it starts otherwise.
std::pair<int, int> Version(const std::string& release) {
  int major = 0, minor = 0;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return {};
  std::from_chars(dot + 1, end, minor);
  return {major, minor};
}

void CheckUring(const Host& host, Findings& findings) {
  const std::string disabled = host.KernelText("/proc/sys/kernel/io_uring_disabled").value_or("0");
  const Status works = host.UringWorks();
  constexpr const char* kWhy = "experts are read through a pool of threads instead: more processor time for each read";
  if (works)
    findings.Ok("io_uring.works", "io_uring can be used");
  else if (disabled != "0")
    findings.Warning("io_uring.disabled", Cat("switched off by sysctl (kernel.io_uring_disabled = ", disabled, ")"),
                     kWhy, ByCommand("sudo sysctl kernel.io_uring_disabled=0"));
  else
    findings.Warning(
        "io_uring.refused", works.error().message(), kWhy,
        ByAdvice("in a container: allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile"));
}

}  // namespace

void CheckKernel(const Subject& subject, Findings& findings) {
  const Host& host = subject.host;
  const std::string text = host.KernelName() + " " + host.KernelRelease();
  if (host.KernelName() != "Linux") {
    findings.Note("kernel.other", text, "tested on Linux; io_uring, direct-read alignment and drive names need it");
    return;
  }
  const std::pair<int, int> version = Version(host.KernelRelease());
  if (version != std::pair<int, int>() && version < std::pair(5, 6))
    findings.Warning("kernel.old", text, "before 5.6 there is no io_uring that reads files",
                     ByAdvice("use a newer kernel"));
  else if (version != std::pair<int, int>() && version < std::pair(6, 1))
    findings.Note("kernel.alignment", text,
                  "before 6.1 the kernel does not tell what direct reads must be aligned to: 4096 bytes are taken");
  else
    findings.Ok("kernel.version", text);
  CheckUring(host, findings);
}

}  // namespace deltafin
