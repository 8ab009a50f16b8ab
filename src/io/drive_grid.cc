#include "io/drive_grid.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/units.h"

namespace deltafin {
namespace {

constexpr std::array<uint64_t, 5> kBlocks = {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, kLargestProbeBlock};
constexpr int kDeepest = 32;
constexpr double kWorthwhileGain = 1.03;
constexpr double kAsGoodAsTheFastest = 0.98;

double FastestRate(std::span<const DriveMeasurement> measured) {
  double rate = 0;
  for (const DriveMeasurement& m : measured) rate = std::max(rate, m.bytes_per_second);
  return rate;
}

bool Fits(const DriveSetting& setting, std::span<const DriveMeasurement> measured, const CellLimits& limits) {
  if (setting.in_flight() > kMostProbeInFlight || setting.in_flight() > limits.bytes / 4) return false;
  const double rate = FastestRate(measured);
  return rate == 0 || static_cast<double>(setting.in_flight()) / rate <= limits.seconds / 4;
}

// Whether the last two depths of `block` gained nothing worth having.
bool Levelled(std::span<const DriveMeasurement> measured, uint64_t block) {
  if (measured.size() < 3) return false;
  const DriveMeasurement* last = measured.data() + measured.size() - 3;
  if (last[0].block_bytes != block) return false;
  return last[1].bytes_per_second < last[0].bytes_per_second * kWorthwhileGain &&
         last[2].bytes_per_second < last[1].bytes_per_second * kWorthwhileGain;
}

}  // namespace

std::optional<DriveSetting> NextSetting(std::span<const DriveMeasurement> measured, const CellLimits& limits) {
  if (measured.empty()) return DriveSetting{kBlocks[0], 1};
  const DriveMeasurement& last = measured.back();
  const DriveSetting deeper{last.block_bytes, last.depth * 2};
  if (deeper.depth <= kDeepest && !Levelled(measured, last.block_bytes) && Fits(deeper, measured, limits))
    return deeper;
  for (const uint64_t block : kBlocks)
    if (block > last.block_bytes && Fits({block, 1}, measured, limits)) return DriveSetting{block, 1};
  return std::nullopt;
}

DriveMeasurement BestSetting(std::span<const DriveMeasurement> measured) {
  DFIN_CHECK(!measured.empty(), "nothing was measured");
  const double enough = FastestRate(measured) * kAsGoodAsTheFastest;
  const DriveMeasurement* best = nullptr;
  const auto in_flight = [](const DriveMeasurement& m) { return m.block_bytes * static_cast<uint64_t>(m.depth); };
  for (const DriveMeasurement& m : measured) {
    if (m.bytes_per_second < enough) continue;
    const bool better = best == nullptr || in_flight(m) < in_flight(*best) ||
                        (in_flight(m) == in_flight(*best) && m.bytes_per_second > best->bytes_per_second);
    if (better) best = &m;
  }
  return *best;
}

bool LooksCached(double direct_rate, double buffered_rate) { return buffered_rate > 2 * direct_rate; }

bool PrefersDirect(double direct_rate, double buffered_rate, bool cached) {
  return cached || buffered_rate <= direct_rate * 1.05;
}

bool SharesLimit(double together, double alone) { return together < 0.9 * alone; }

}  // namespace deltafin
