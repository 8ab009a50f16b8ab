// The tables of docs/PLANNING.md are what the program says, row by row; so the document cannot rot.
#include "simulate/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/result.h"
#include "k3_shape.h"
#include "simulate/own_measurements.h"

namespace deltafin::simulate {
namespace {

std::string Document() {
  std::ifstream file(DELTAFIN_PLANNING);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Without what compilers may round differently: whose row, and whether it holds.
struct Verdict {
  std::string id, what, holds;
  bool operator==(const Verdict&) const = default;
};

std::vector<Verdict> VerdictsOf(const std::string& table) {
  std::vector<Verdict> verdicts;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(cell);
    if (cells.size() < 7 || cells[6].find_first_not_of(" -") == std::string::npos) continue;
    verdicts.push_back({cells[1], cells[2], cells[6]});
  }
  return verdicts;
}

void ExpectInDocument(const std::vector<TargetRow>& rows) {
  const std::vector<Verdict> documented = VerdictsOf(Document());
  for (const Verdict& verdict : VerdictsOf(ToMarkdown(rows)))
    EXPECT_NE(std::find(documented.begin(), documented.end(), verdict), documented.end())
        << verdict.id << verdict.what << verdict.holds
        << ": make the tables of docs/PLANNING.md again (plan --calibrate)";
}

TEST(Calibration, IsWhatTheDocumentSays) {
  const std::vector<TargetRow> rows = Calibrate(test::K3Shape(), 1);
  std::set<std::string> ids;
  for (const TargetRow& row : rows) ids.insert(row.id);
  for (int i = 1; i <= 15; ++i) EXPECT_TRUE(ids.count(Cat("C", i))) << i;
  ExpectInDocument(rows);
}

TEST(Calibration, OnlyC1C6AndC9SetParameters) {
  for (const TargetRow& row : Calibrate(test::K3Shape(), 1))
    EXPECT_EQ(row.is_set, row.id == "C1" || row.id == "C6" || row.id == "C9") << row.id;
}

TEST(Calibration, OwnMeasurementsAreWhatTheDocumentSays) {
  const auto rows = CompareOwnMeasurements();
  ASSERT_TRUE(rows) << rows.error().message();
  ExpectInDocument(*rows);
}

TEST(TargetRow, ATenthBeyondTheNearerEndHolds) {
  TargetRow row{.id = "x", .what = "y", .unit = "s", .low = 100, .high = 200, .simulated = 90};
  EXPECT_TRUE(row.holds());
  EXPECT_DOUBLE_EQ(row.difference(), -10);
  row.simulated = 89.9;
  EXPECT_FALSE(row.holds());
  row.simulated = 220;
  EXPECT_TRUE(row.holds());
  row.tolerance = 5;
  EXPECT_FALSE(row.holds());
  row.simulated = 150;
  EXPECT_EQ(row.difference(), 0);
  TargetRow negative{.id = "x", .what = "y", .unit = "%", .low = -10, .high = -8, .simulated = -11.2};
  EXPECT_FALSE(negative.holds());
  negative.simulated = -7.3;
  EXPECT_TRUE(negative.holds());
}

}  // namespace
}  // namespace deltafin::simulate
