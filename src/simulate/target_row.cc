#include "simulate/target_row.h"

#include <cmath>
#include <cstdio>

#include "base/result.h"

namespace deltafin::simulate {
namespace {

constexpr double kTenth = 0.1;

std::string Number(double value) {
  char text[40];
  const double size = std::abs(value);
  std::snprintf(text, sizeof text, size >= 100 ? "%.0f" : size >= 10 ? "%.1f" : size >= 2 ? "%.2f" : "%.3f", value);
  return text;
}

}  // namespace

double TargetRow::difference() const {
  return simulated < low ? simulated - low : simulated > high ? simulated - high : 0;
}

double TargetRow::allowed() const {
  return tolerance >= 0 ? tolerance : kTenth * std::abs(simulated < low ? low : high);
}

bool TargetRow::holds() const { return std::isfinite(simulated) && std::abs(difference()) <= allowed() * (1 + 1e-9); }

std::string ToMarkdown(const std::vector<TargetRow>& rows) {
  std::string text = "| target | what | measured | simulated | difference | |\n|---|---|---|---|---|---|\n";
  for (const TargetRow& row : rows) {
    const double nearer = row.simulated < row.low ? row.low : row.high;
    const bool in_units = row.tolerance >= 0;
    const double shown = in_units || nearer == 0 ? row.difference() : 100 * row.difference() / std::abs(nearer);
    char difference[40];
    std::snprintf(difference, sizeof difference, "%+.1f %s", shown, in_units ? "points" : "%");
    text += Cat("| ", row.id, " | ", row.what, " | ",
                row.low == row.high ? Number(row.low) : Number(row.low) + " to " + Number(row.high), " ", row.unit,
                " | ", Number(row.simulated), " | ", difference, " | ",
                row.holds() ? row.is_set ? "holds (set by it)" : "holds" : "MISSED", " |\n");
  }
  return text;
}

}  // namespace deltafin::simulate
