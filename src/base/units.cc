#include "base/units.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace deltafin {
namespace {

std::string ThreeDigits(double value, const char* unit) {
  char text[48];
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return ThreeDigits(value, kUnits[unit]);
}

std::string FormatRate(double bytes_per_second) {
  if (!(bytes_per_second >= 0)) return "0 B/s";
  return FormatBytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

std::string FormatSeconds(double seconds) {
  char text[48];
  if (seconds < 10) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (seconds < 99.5) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 3600) {
    const int whole = static_cast<int>(std::lround(seconds));
    std::snprintf(text, sizeof text, "%d min %02d s", whole / 60, whole % 60);
  } else {
    const int64_t minutes = std::llround(seconds / 60);
    std::snprintf(text, sizeof text, "%lld h %02lld min", static_cast<long long>(minutes / 60),
                  static_cast<long long>(minutes % 60));
  }
  return text;
}

Result<uint64_t> ParseSize(std::string_view text) {
  const std::string copy(text);
  const auto refuse = [&](const char* why) {
    return Fail(ErrorCode::kInvalidArgument, "size \"", copy, "\": ", why,
                ": write a number with a unit, such as 8GiB or 1.5GB (KB MB GB TB, KiB MiB GiB TiB)");
  };
  if (copy.empty() || !(std::isdigit(static_cast<unsigned char>(copy[0])) || copy[0] == '.'))
    return refuse("not a size");
  if (copy.size() > 1 && (copy[1] == 'x' || copy[1] == 'X')) return refuse("not a decimal number");
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  while (*end == ' ') ++end;
  std::string unit;
  for (; *end != '\0'; ++end) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
  double factor = 0;
  if (unit.empty()) return refuse("no unit");
  if (unit == "b") factor = 1;
  const std::string prefixes = "kmgt";
  const size_t power = prefixes.find(unit[0]);
  if (power != std::string::npos && (unit.substr(1) == "b" || unit.substr(1) == "ib"))
    factor = std::pow(unit.size() == 2 ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  if (factor == 0) return refuse("unknown unit");
  const double bytes = number * factor;
  if (!(bytes < 9e18)) return refuse("too large");
  return static_cast<uint64_t>(bytes);
}

}  // namespace deltafin
