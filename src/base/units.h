// units.h: sizes and rates, written for people and read from them.
//
// KB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB of 1024 (spec: the command line).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deltafin {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// "17.5 MB", "1.56 TB", "812 B": three digits, powers of 1000.
std::string FormatBytes(uint64_t bytes);
// "2.71 GB/s".
std::string FormatRate(double bytes_per_second);
// "0.8 s", "45 s", "3 min 20 s", "2 h 05 min".
std::string FormatSeconds(double seconds);
// "8GiB", "1.5 GB". A bare number, a negative one or an unknown unit is refused.
Result<uint64_t> ParseSize(std::string_view text);

}  // namespace deltafin
