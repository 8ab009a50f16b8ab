// kernel_counters: what the system itself counted for drives and processors, beside our own counters.
//
// For measuring: bytes that the kernel read from a device for anybody, and processor time that anybody used. Linux
// reads /sys/dev/block/*/stat (Documentation/block/stat.rst; sectors of 512 bytes) and /proc/stat; elsewhere nothing is
// known. One of kernel_counters_linux.cc and kernel_counters_posix.cc is linked. Functions without state; thread-safe.
// No errors: what is not known is empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltafin {

struct DeviceCounters {
  uint64_t reads = 0, bytes_read = 0;
  double busy_seconds = 0;  // with at least one request in flight, reading or writing
};

// `file`: MountedDrive::counters.
std::optional<DeviceCounters> ReadDeviceCounters(const std::string& file);
// The text of such a file.
std::optional<DeviceCounters> ParseDeviceCounters(std::string_view text);

// Since the system started, of all processors.
struct ProcessorTimes {
  double busy_seconds = 0;
  double stolen_seconds = 0;  // that the host of a virtual machine gave to others
  int processors = 0;
};
std::optional<ProcessorTimes> ReadProcessorTimes();
// The text of /proc/stat.
std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view text, double ticks_per_second);

}  // namespace deltafin
