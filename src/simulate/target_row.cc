#include "simulate/target_row.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"

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

std::string TargetRow::verdict() const {
  std::string text = holds() ? "holds" : "MISSED";
  if (role == RowRole::kParameters) text += " (set by it)";
  if (role == RowRole::kScenario) text += " (set from its own row)";
  return text;
}

Result<std::vector<TargetRow>> OverSeeds(uint64_t first, int count,
                                         const std::function<Result<std::vector<TargetRow>>(uint64_t)>& simulate) {
  DFIN_CHECK(count > 0, "a mean needs one seed");
  std::vector<TargetRow> means;
  for (int i = 0; i < count; ++i) {
    DFIN_TRY(const std::vector<TargetRow> rows, simulate(first + static_cast<uint64_t>(i)));
    if (i == 0) means = rows;
    DFIN_CHECK(rows.size() == means.size(), "every seed simulates the same rows");
    for (size_t r = 0; r < rows.size(); ++r) {
      const double value = rows[r].simulated;
      TargetRow& mean = means[r];
      mean.least = i == 0 ? value : std::min(mean.least, value);
      mean.most = i == 0 ? value : std::max(mean.most, value);
      mean.simulated = i == 0 ? value : mean.simulated + value;
    }
  }
  for (TargetRow& mean : means) {
    mean.seeds = count;
    mean.simulated /= count;
  }
  return means;
}

std::string ToMarkdown(const std::vector<TargetRow>& rows) {
  std::string text =
      "| target | what | measured | simulated | least to most, seeds | difference | |\n|---|---|---|---|---|---|---|\n";
  for (const TargetRow& row : rows) {
    const double nearer = row.simulated < row.low ? row.low : row.high;
    const bool in_units = row.tolerance >= 0;
    const double shown = in_units || nearer == 0 ? row.difference() : 100 * row.difference() / std::abs(nearer);
    char difference[40];
    std::snprintf(difference, sizeof difference, "%+.1f %s", shown, in_units ? "points" : "%");
    text += Cat("| ", row.id, " | ", row.what, " | ",
                row.low == row.high ? Number(row.low) : Number(row.low) + " to " + Number(row.high), " ", row.unit,
                " | ", Number(row.simulated), " | ",
                row.seeds > 1 ? Cat(Number(row.least), " to ", Number(row.most), ", ", row.seeds) : std::string("-"),
                " | ", difference, " | ", row.verdict(), " |\n");
  }
  return text;
}

}  // namespace deltafin::simulate
