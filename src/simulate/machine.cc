#include "simulate/machine.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/units.h"

namespace deltafin::simulate {
namespace {

constexpr double kGigabyte = 1e9;
// Two ways of writing one rate are one rate.
constexpr double kSameRate = 1e-6;

Result<double> ParseGigabytes(std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    return Fail(ErrorCode::kInvalidArgument, what, " \"", text, "\": expected a rate in GB/s above 0, e.g. 7.1");
  if (value * kGigabyte < kLeastRate || value * kGigabyte > kMostRate)
    return Fail(ErrorCode::kInvalidArgument, what, " ", text, " GB/s: expected ", kLeastRate / kGigabyte, " to ",
                kMostRate / kGigabyte);
  return value * kGigabyte;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// The first drive of that rate for which `taken` is false; drives.size() when there is none.
template <typename Taken>
size_t FindDrive(const std::vector<Drive>& drives, double rate, Taken taken) {
  size_t i = 0;
  for (; i < drives.size(); ++i)
    if (std::abs(drives[i].bytes_per_second / rate - 1) < kSameRate && !taken(i)) break;
  return i;
}

Status ChangeRam(Machine& machine, std::string_view change, std::string_view text, bool add) {
  Result<uint64_t> size = ParseSize(text);
  if (!size) return FailWith(std::move(size), change);
  if (add && *size > static_cast<uint64_t>(kMostRate))
    return Fail(ErrorCode::kInvalidArgument, change, ": expected less than ", kMostRate / kGigabyte, " GB");
  if (!add && *size >= machine.ram_bytes)
    return Fail(ErrorCode::kInvalidArgument, change, ": expected less than the ", FormatBytes(machine.ram_bytes),
                " that are there");
  machine.ram_bytes = add ? machine.ram_bytes + *size : machine.ram_bytes - *size;
  return {};
}

}  // namespace

double Machine::summed_rate() const {
  std::vector<double> hubs(hub_rates.size(), 0);
  double sum = 0;
  for (const Drive& drive : drives)
    (drive.hub < 0 ? sum : hubs[static_cast<size_t>(drive.hub)]) += drive.bytes_per_second;
  for (size_t h = 0; h < hubs.size(); ++h) sum += std::min(hubs[h], hub_rates[h]);
  return sum;
}

size_t Machine::fastest() const {
  const auto slower = [](const Drive& a, const Drive& b) { return a.bytes_per_second < b.bytes_per_second; };
  return static_cast<size_t>(std::max_element(drives.begin(), drives.end(), slower) - drives.begin());
}

Status CheckMachine(const Machine& machine) {
  const auto rate_is_good = [](double rate) { return std::isfinite(rate) && rate >= kLeastRate && rate <= kMostRate; };
  if (machine.drives.empty() || machine.drives.size() > kMostDrives)
    return Fail(ErrorCode::kInvalidArgument, "drives: expected 1 to ", kMostDrives, ", got ", machine.drives.size());
  for (const Drive& drive : machine.drives) {
    if (!rate_is_good(drive.bytes_per_second))
      return Fail(ErrorCode::kInvalidArgument, "drive: expected ", kLeastRate, " to ", kMostRate, " bytes/s, got ",
                  drive.bytes_per_second);
    if (!std::isfinite(drive.first_byte_seconds) || drive.first_byte_seconds < 0 || drive.first_byte_seconds > 10)
      return Fail(ErrorCode::kInvalidArgument, "latency of a drive: expected 0 to 10 s, got ",
                  drive.first_byte_seconds);
    if (drive.hub >= static_cast<int>(machine.hub_rates.size()))
      return Fail(ErrorCode::kInvalidArgument, "hub of a drive: there is no such hub");
  }
  for (const double rate : machine.hub_rates)
    if (!rate_is_good(rate)) return Fail(ErrorCode::kInvalidArgument, "hub: a rate of ", rate, " bytes/s");
  if (!rate_is_good(machine.memory_bytes_per_second))
    return Fail(ErrorCode::kInvalidArgument, "memory bandwidth: expected ", kLeastRate, " to ", kMostRate,
                " bytes/s, got ", machine.memory_bytes_per_second);
  if (!std::isfinite(machine.flops_per_second) || machine.flops_per_second < kLeastFlops ||
      machine.flops_per_second > kMostFlops)
    return Fail(ErrorCode::kInvalidArgument, "arithmetic: expected 1e6 to 1e18 a second, got ",
                machine.flops_per_second);
  return {};
}

Result<std::vector<Drive>> ParseDrives(std::string_view text) {
  std::vector<Drive> drives;
  for (const std::string_view part : Split(text, ',')) {
    DFIN_TRY(const double rate, ParseGigabytes(part, "drive"));
    drives.push_back({.bytes_per_second = rate});
    if (drives.size() > kMostDrives) return Fail(ErrorCode::kInvalidArgument, "drives: expected at most ", kMostDrives);
  }
  return drives;
}

Status AddHub(Machine& machine, std::string_view text) {
  const size_t at = text.find('@');
  if (at == std::string_view::npos)
    return Fail(ErrorCode::kInvalidArgument, "hub \"", text, "\": expected rates of drives and what the hub carries, ",
                "e.g. 7.1+5.4@8");
  DFIN_TRY(const double limit, ParseGigabytes(text.substr(at + 1), "hub"));
  std::vector<size_t> members;
  for (const std::string_view part : Split(text.substr(0, at), '+')) {
    DFIN_TRY(const double rate, ParseGigabytes(part, "drive of a hub"));
    const size_t found = FindDrive(machine.drives, rate, [&](size_t i) {
      return machine.drives[i].hub >= 0 || std::find(members.begin(), members.end(), i) != members.end();
    });
    if (found == machine.drives.size())
      return Fail(ErrorCode::kInvalidArgument, "hub \"", text, "\": no drive of ", part,
                  " GB/s is left that is not behind a hub");
    members.push_back(found);
  }
  for (const size_t i : members) machine.drives[i].hub = static_cast<int>(machine.hub_rates.size());
  machine.hub_rates.push_back(limit);
  return {};
}

Status ApplyChange(Machine& machine, std::string_view change) {
  const bool add = change.starts_with('+');
  const size_t colon = change.find(':');
  const std::string_view what = colon == std::string_view::npos ? "" : change.substr(1, colon - 1);
  if ((!add && !change.starts_with('-')) || (what != "drive" && what != "ram"))
    return Fail(ErrorCode::kInvalidArgument, "change \"", change,
                "\": expected +drive:RATE, -drive:RATE, +ram:SIZE or -ram:SIZE");
  const std::string_view value = change.substr(colon + 1);
  if (what == "ram") return ChangeRam(machine, change, value, add);
  DFIN_TRY(const double rate, ParseGigabytes(value, "drive"));
  if (add) {
    machine.drives.push_back({.bytes_per_second = rate});
    return machine.drives.size() <= kMostDrives ? Status{} : CheckMachine(machine);
  }
  const size_t found = FindDrive(machine.drives, rate, [](size_t) { return false; });
  if (found == machine.drives.size())
    return Fail(ErrorCode::kInvalidArgument, change, ": there is no drive of ", value, " GB/s");
  if (machine.drives.size() == 1) return Fail(ErrorCode::kInvalidArgument, change, ": it is the only drive");
  machine.drives.erase(machine.drives.begin() + static_cast<std::ptrdiff_t>(found));
  return {};
}

}  // namespace deltafin::simulate
