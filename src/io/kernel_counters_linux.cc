// kernel_counters for Linux.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "io/kernel_counters.h"

namespace deltafin {
namespace {

constexpr uint64_t kSectorBytes = 512;  // in these files, whatever the device's own are

// Opened anew: the kernel makes the text when the file is read. "" when it cannot be.
std::string ReadShortFile(const char* path, size_t most) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text(most, '\0');
  const ssize_t got = read(fd, text.data(), text.size());
  close(fd);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace

std::optional<DeviceCounters> ParseDeviceCounters(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::array<uint64_t, 10> fields{};
  for (uint64_t& field : fields)
    if (!(in >> field)) return std::nullopt;
  return DeviceCounters{.reads = fields[0],
                        .bytes_read = fields[2] * kSectorBytes,
                        .busy_seconds = static_cast<double>(fields[9]) * 1e-3};
}

std::optional<DeviceCounters> ReadDeviceCounters(const std::string& file) {
  return file.empty() ? std::nullopt : ParseDeviceCounters(ReadShortFile(file.c_str(), 512));
}

std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view text, double ticks_per_second) {
  std::istringstream lines{std::string(text)};
  ProcessorTimes times;
  bool known = false;
  for (std::string line; std::getline(lines, line) && line.compare(0, 3, "cpu") == 0;) {
    std::istringstream in(line);
    std::string name;
    std::array<double, 8> ticks{};  // user, nice, system, idle, iowait, irq, softirq, steal
    in >> name;
    for (double& value : ticks) in >> value;
    if (!in) return std::nullopt;
    if (name != "cpu") {
      ++times.processors;
      continue;
    }
    known = true;
    times.busy_seconds = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / ticks_per_second;
    times.stolen_seconds = ticks[7] / ticks_per_second;
  }
  return known && times.processors > 0 ? std::optional(times) : std::nullopt;
}

std::optional<ProcessorTimes> ReadProcessorTimes() {
  return ParseProcessorTimes(ReadShortFile("/proc/stat", size_t{1} << 18), static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace deltafin
