// drive_grid: which block sizes and queue depths are worth measuring on a drive, and which one to use.
//
// Pure functions over measurements (drive_profile.h): no I/O, no state. Thread-safe. The limits come from what is
// published about single drives: a few large reads in flight saturate any SSD; a queue that holds more than a quarter
// of a measurement says nothing that a shorter one did not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/drive_profile.h"

namespace deltafin {

struct DriveSetting {
  uint64_t block_bytes = 0;
  int depth = 0;
  uint64_t in_flight() const { return block_bytes * static_cast<uint64_t>(depth); }
  bool operator==(const DriveSetting&) const = default;
};

inline constexpr uint64_t kLargestProbeBlock = uint64_t{16} << 20;
inline constexpr uint64_t kMostProbeInFlight = uint64_t{64} << 20;

// What one measurement may use.
struct CellLimits {
  double seconds = 0;
  uint64_t bytes = 0;
};

// The next setting to measure after `measured` (in the order that this function gave), or nothing when the grid is
// done: 64 KiB to 16 MiB by 1 to 32, block by block. Depths of a block end where two doublings in a row gained less
// than 3 %, where the queue would hold more than a quarter of `limits`, and at kMostProbeInFlight.
std::optional<DriveSetting> NextSetting(std::span<const DriveMeasurement> measured, const CellLimits& limits);

// Of all measured: within 2 % of the fastest, the one with the fewest bytes in flight. `measured` is not empty.
DriveMeasurement BestSetting(std::span<const DriveMeasurement> measured);

// A "cold" buffered read cannot be much faster than the drive: then a cache answered.
bool LooksCached(double direct_rate, double buffered_rate);
// Buffered reads take memory from the expert cache and processor time, so they must be clearly faster, and not from a
// cache.
bool PrefersDirect(double direct_rate, double buffered_rate, bool cached);

// Two drives that together deliver less than 90 % of what they deliver alone share a limit: a hub, a bus, one device.
bool SharesLimit(double together, double alone);

}  // namespace deltafin
