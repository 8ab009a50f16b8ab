// The tables of docs/PLANNING.md are what the program says, cell by cell; and its targets are those of the published
// measurements, not of our own output.
#include "simulate/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/result.h"
#include "k3_shape.h"
#include "simulate/own_measurements.h"
#include "simulate/planner.h"
#include "simulate/published_rig.h"
#include "support/test_data.h"

namespace deltafin::simulate {
namespace {

using testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

using Cells = std::vector<std::string>;

std::vector<Cells> TableRows(const std::string& text) {
  std::vector<Cells> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') continue;
    Cells cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(Trim(cell));
    rows.push_back(std::move(cells));
  }
  return rows;
}

const std::vector<Cells>& Documented() {
  static const std::vector<Cells> rows = TableRows(TextOf(DELTAFIN_PLANNING));
  return rows;
}

// The numbers in a cell, as they stand.
std::vector<double> NumbersOf(const std::string& cell) {
  std::vector<double> numbers;
  const std::string digits = "0123456789";
  for (size_t at = 0; at < cell.size();) {
    const bool sign = (cell[at] == '-' || cell[at] == '+') && at + 1 < cell.size() &&
                      digits.find(cell[at + 1]) != std::string::npos && (at == 0 || cell[at - 1] == ' ');
    if (!sign && digits.find(cell[at]) == std::string::npos) {
      ++at;
      continue;
    }
    size_t length = 0;
    numbers.push_back(std::stod(cell.substr(at), &length));
    at += length;
  }
  return numbers;
}

// Within 1 %, or the last digit that is shown of a small number.
void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double digit,
                const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], std::max(0.01 * std::abs(want[i]), digit)) << where;
}

void ExpectInDocument(const std::vector<TargetRow>& rows) {
  for (const Cells& row : TableRows(ToMarkdown(rows))) {
    ASSERT_EQ(row.size(), 7u);
    if (NumbersOf(row[3]).empty()) continue;  // heading
    const auto found = std::find_if(Documented().begin(), Documented().end(), [&](const Cells& d) {
      return d.size() == 7 && d[0] == row[0] && d[1] == row[1] && d[2] == row[2];
    });
    const std::string where = row[0] + ", " + row[1] + ", " + row[2] + ": make the tables of docs/PLANNING.md again";
    ASSERT_NE(found, Documented().end()) << where;
    ExpectNear(NumbersOf((*found)[3]), NumbersOf(row[3]), 0.0011, where);
    // The ends of a spread are those of single seeds.
    ExpectNear(NumbersOf((*found)[4]), NumbersOf(row[4]), 0.0011, where);
    ExpectNear(NumbersOf((*found)[5]), NumbersOf(row[5]), 1, where);
    EXPECT_EQ((*found)[6], row[6]) << where;
  }
}

const std::vector<TargetRow>& Calibrated() {
  static const Result<std::vector<TargetRow>> rows = Calibrate(test::K3Shape(), 1);
  static const std::vector<TargetRow> none;
  EXPECT_TRUE(rows);
  return rows ? *rows : none;
}

// What was measured, copied from the list of calibration targets (storage_facts.md, section 13), in its order; what is
// not said there by a number of its own stands with the words it was taken from.
struct Target {
  const char* id;
  double low, high;
  double tolerance;   // in units of the target; -1: a tenth
  const char* words;  // of the list's line, or of another line
};
constexpr Target kTargets[] = {
    {"C1", 0.427, 0.427, -1, "0.427 tok/s inclusive"},
    {"C1", 0.445, 0.445, -1, "~0.445 steady"},
    {"C2", 0.6245, 0.6245, -1, "0.6245"},
    {"C3", 0.7855, 0.7855, -1, "0.7855"},
    {"C4", 0.863, 0.863, -1, "0.863 inclusive"},
    {"C4", 0.926, 0.926, -1, "0.926 steady"},
    {"C5", 1.0377, 1.0377, -1, "1.0377 / 1.1252"},
    {"C5", 1.1252, 1.1252, -1, "1.0377 / 1.1252"},
    {"C6", 799, 799, -1, "799 / 545 / 375 s"},
    {"C6", 545, 545, -1, "799 / 545 / 375 s"},
    {"C6", 375, 375, -1, "799 / 545 / 375 s"},
    {"C6", 9.0, 9.0, -1, "9.0 TB"},
    {"C7", 1.44, 1.44, -1, "1.44 TB"},
    {"C7", 120, 150, -1, "~120–150 s on four drives"},
    {"C8", 127, 135, -1, "127–135 GB"},
    {"C8", 4.5, 4.95, -1, "4.5–4.95 s"},
    {"C9", 0, 2, 0, "hit ≤2%"},
    {"C9", 30, 30, -1, "~30% at 36 GB"},
    {"C9", 44, 44, -1, "~44% at 109 GB"},
    {"C10", 52, 52, 3, "52 ± 3% in sample"},
    {"C10", 41, 41, 3, "41 ± 3% held out"},
    {"C11", 4, 4, 2, "+4% s/token"},
    {"C12", 1.15, 1.15, -1, "ratio 1 : 1.15 : 1.32"},
    {"C12", 1.32, 1.32, -1, "ratio 1 : 1.15 : 1.32"},
    {"C13", -10.5, -8, -1, "−8 to −10.5%"},
    {"C14", -33, -24, -1, "−24 to −33%"},
    {"C15", -100, 0, 0, "slower than weighted split"},
};

TEST(Calibration, ComparesWithThePublishedTargets) {
  const std::vector<TargetRow>& rows = Calibrated();
  ASSERT_EQ(rows.size(), std::size(kTargets));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Target& target = kTargets[i];
    EXPECT_EQ(rows[i].id, target.id) << i;
    EXPECT_EQ(rows[i].low, target.low) << rows[i].what;
    EXPECT_EQ(rows[i].high, target.high) << rows[i].what;
    EXPECT_EQ(rows[i].tolerance, target.tolerance) << rows[i].what;
  }
}

TEST(Calibration, TargetsAreThoseOfTheList) {
  const auto list = test::SharedPath("spec/storage_facts.md");
  if (!list) GTEST_SKIP() << "the list of published measurements is not on this machine";
  std::map<std::string, std::string> lines;
  std::istringstream text(TextOf(*list));
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("| C")) lines[line.substr(2, line.find(' ', 2) - 2)] = line;
  for (const Target& target : kTargets) EXPECT_THAT(lines[target.id], HasSubstr(target.words)) << target.id;
}

TEST(Calibration, IsWhatTheDocumentSays) { ExpectInDocument(Calibrated()); }

TEST(Calibration, OnlyC1C6AndC9SetParametersAndC12ItsScenario) {
  for (const TargetRow& row : Calibrated()) {
    const RowRole role = row.id == "C1" || row.id == "C6" || row.id == "C9" ? RowRole::kParameters
                         : row.id == "C12"                                  ? RowRole::kScenario
                                                                            : RowRole::kPrediction;
    EXPECT_EQ(row.role, role) << row.id;
  }
}

// One run of 128 tokens must not decide whether a row holds.
TEST(Calibration, NoVerdictDependsOnASeed) {
  for (const TargetRow& row : Calibrated()) {
    EXPECT_GE(row.seeds, 8) << row.id;
    TargetRow end = row;
    for (const double value : {row.least, row.most}) {
      end.simulated = value;
      EXPECT_EQ(end.holds(), row.holds()) << row.id << ' ' << row.what << ' ' << value;
    }
  }
}

TEST(Calibration, OwnMeasurementsAreWhatTheDocumentSays) {
  const auto rows = CompareOwnMeasurements(1);
  ASSERT_TRUE(rows) << rows.error().message();
  ExpectInDocument(*rows);
}

// Every number that is set in engine_model.cc, routing.cc and published_rig.cc, by its name in the document.
TEST(Parameters, AreWhatTheDocumentSays) {
  const EngineModel published = PublishedEngine(), own = OwnEngine(true);
  const RoutingStatistics k3 = K3Statistics(), mirror = MirrorStatistics();
  const ModelShape shape = test::K3Shape();
  const Machine rig = ReferenceRig(4);
  const auto single = PublishedSingleDrive(shape, 1), two = PublishedMirror(shape, 0.5, 1);
  const std::vector<double> held = PublishedLayout(4).held;
  std::vector<double> rates, first;
  for (const Drive& drive : rig.drives) {
    rates.push_back(drive.bytes_per_second / 1e9);
    first.push_back(drive.first_byte_seconds * 1e3);
  }
  const std::map<std::string, std::vector<double>> parameters = {
      {"share of a drive's rate", {published.drive_share}},
      {"a layer, of one row", {published.layer_seconds * 1e3}},
      {"each further row", {published.row_seconds * 1e3}},
      {"one expert on one row", {published.choice_seconds * 1e6}},
      {"experts read in prompts, over those wanted", {published.prompt_waste}},
      {"keeping, recent choices, how far back", {k3.keep, k3.recent, k3.recent_tokens}},
      {"rows of a pass through a prompt", {static_cast<double>(published.prompt_rows)}},
      {"layers of look-ahead", {static_cast<double>(published.ahead_layers)}},
      {"guesses that are right", {published.right}},
      {"fall of popularity over all experts", {k3.spread}},
      {"distinct experts by rows, exponent", {k3.growth}},
      {"rates of the drives", rates},
      {"first byte of a read", first},
      {"the most used on the drives of the rates above", {1, 100 * held[1], 100 * held[2], 100 * held[3]}},
      {"drafts a step", {PublishedDrafts(0.64).mean_drafts()}},
      {"memory, bandwidth, arithmetic of the reference machine",
       {static_cast<double>(rig.ram_bytes) / 1e9, rig.memory_bytes_per_second / 1e9, rig.flops_per_second / 1e12}},
      {"C11: rate of the drive", {single.machine.drives[0].bytes_per_second / 1e9}},
      {"C11: a layer", {single.engine.layer_seconds * 1e3}},
      {"C11: dense weights", {single.engine.dense_form * shape.dense_bytes() / 1e9}},
      {"C12: layers, experts, a token's",
       {static_cast<double>(two.shape.layers.size()), static_cast<double>(two.shape.experts),
        static_cast<double>(two.shape.experts_per_token)}},
      {"C12: bytes of an expert", {two.shape.record_bytes / 1e6}},
      {"C12: found in memory", {two.engine.hit_share}},
      {"C12: work of a token", {two.engine.layer_seconds * static_cast<double>(two.shape.layers.size())}},
      {"C12: rate of each drive", {two.machine.drives[0].bytes_per_second / 1e9}},
      {"C12: spread, keeping, growth", {mirror.spread, mirror.keep, mirror.growth}},
      {"this engine: share of a drive's rate", {own.drive_share}},
      {"this engine: share of memory bandwidth, dense and experts", {own.dense_share, own.expert_share}},
      {"this engine: share of multiplying", {own.arithmetic_share}},
      {"this engine: a layer outside kernels", {own.layer_seconds * 1e6}},
      {"this engine: dense weights in 12 bits over BF16", {own.dense_form}},
      {"this engine: experts named one layer ahead, right", {own.named, own.right}},
  };
  for (const auto& [name, values] : parameters) {
    const auto row = std::find_if(Documented().begin(), Documented().end(),
                                  [&, key = name](const Cells& d) { return d.size() == 3 && d[0] == key; });
    ASSERT_NE(row, Documented().end()) << name << ": is not in the table of docs/PLANNING.md";
    ExpectNear(NumbersOf((*row)[1]), values, 0, name);
    EXPECT_FALSE((*row)[2].empty()) << name << ": where is it from?";
  }
}

TEST(ReferenceMachine, IsWhatTheDocumentSays) {
  PlanRequest request;
  request.shape = test::K3Shape();
  request.machine = ReferenceRig(4);
  const auto expect = [](const char* words, const PlanRequest& changed) {
    const auto row = std::find_if(Documented().begin(), Documented().end(), [&](const Cells& d) {
      return d.size() == 3 && d[0].find(words) != std::string::npos;
    });
    ASSERT_NE(row, Documented().end()) << words;
    const auto answer = Plan(changed);
    ASSERT_TRUE(answer);
    ExpectNear(NumbersOf((*row)[1]), {answer->tokens_per_second}, 0.0051, words);
    ExpectNear(NumbersOf((*row)[2]), {answer->seconds_first_token}, 0.51, words);
  };
  expect("this engine, simulated", request);
  PlanRequest drafts = request, released = request, arithmetic = request;
  drafts.draft_chance = 0.8;
  expect("with drafts that are right", drafts);
  released.packed = false;
  expect("dense weights as released", released);
  arithmetic.machine.flops_per_second *= 2;
  expect("twice the arithmetic", arithmetic);
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

TEST(OverSeeds, IsTheMeanAndTheEnds) {
  const auto rows = OverSeeds(5, 3, [](uint64_t seed) -> Result<std::vector<TargetRow>> {
    const auto s = static_cast<double>(seed);
    return std::vector<TargetRow>{{.id = "a", .what = "", .unit = "", .simulated = s * s},
                                  {.id = "b", .what = "", .unit = "", .simulated = -s}};
  });
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_DOUBLE_EQ((*rows)[0].simulated, (25.0 + 36 + 49) / 3);
  EXPECT_EQ((*rows)[0].least, 25);
  EXPECT_EQ((*rows)[0].most, 49);
  EXPECT_EQ((*rows)[0].seeds, 3);
  EXPECT_EQ((*rows)[1].least, -7);
  EXPECT_EQ((*rows)[1].most, -5);
  const auto failed =
      OverSeeds(1, 2, [](uint64_t) -> Result<std::vector<TargetRow>> { return Fail(ErrorCode::kIo, "no"); });
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace deltafin::simulate
