// kernel_counters where there is neither /sys nor /proc.
#include "io/kernel_counters.h"

namespace deltafin {

std::optional<DeviceCounters> ReadDeviceCounters(const std::string&) { return std::nullopt; }

std::optional<DeviceCounters> ParseDeviceCounters(std::string_view) { return std::nullopt; }

std::optional<ProcessorTimes> ReadProcessorTimes() { return std::nullopt; }

std::optional<ProcessorTimes> ParseProcessorTimes(std::string_view, double) { return std::nullopt; }

}  // namespace deltafin
