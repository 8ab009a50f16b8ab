// `plan` from outside: what scripts rely on, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
#include "io/drive_list.h"
#include "io/drive_profile.h"
#include "support/engine_runs.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

test::ProcessResult Plan(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  arguments.insert(arguments.begin(), "plan");
  options.arguments = std::move(arguments);
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

// A small model, so that the simulations are short.
test::ProcessResult PlanNano(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--model", test::NanoFolder(), "--prompt-tokens", "32"});
  return Plan(std::move(arguments));
}

TEST(Plan, JsonHasTheFieldsThatScriptsReadAndIsTheSameAgain) {
  const auto run = [] { return PlanNano({"--drives", "0.1,0.2", "--ram", "4GB", "--json"}); };
  const auto first = run();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json report = Json::parse(first.out);
  EXPECT_GT(report["tokens_per_second"].get<double>(), 0);
  EXPECT_GT(report["seconds_first_token"].get<double>(), 0);
  EXPECT_TRUE(report["limited_by"].is_string());
  EXPECT_EQ(report["simulated"], true);
  ASSERT_GE(report["alternatives"].size(), 5u);
  for (const Json& alternative : report["alternatives"]) {
    EXPECT_TRUE(alternative["change"].is_string());
    EXPECT_NEAR(alternative["tokens_per_second"].get<double>(),
                report["tokens_per_second"].get<double>() * (1 + alternative["gain"].get<double>()), 1e-6);
  }
  EXPECT_EQ(run().out, first.out);
}

TEST(Plan, TextSaysThatItIsSimulatedAndWhatItAssumed) {
  const auto plan = PlanNano({"--drives", "0.1", "--ram", "4GB", "--what-if", "+drive:0.2"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("Simulated, not measured"));
  EXPECT_THAT(plan.out, HasSubstr("2 drives (0.1 + 0.2 GB/s)"));
  EXPECT_THAT(plan.out, HasSubstr("before       1 drive (0.1 GB/s)"));
  EXPECT_THAT(plan.out, HasSubstr("after, gain +"));
  EXPECT_THAT(plan.out, HasSubstr("limited by"));
  EXPECT_THAT(plan.out, HasSubstr("assumed"));
}

TEST(Plan, WhatIsNoMachineIsUsage) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--drives", "7.1"},
      {"--ram", "64GB"},
      {"--drives", "", "--ram", "64GB"},
      {"--drives", "0", "--ram", "64GB"},
      {"--drives", "-7.1", "--ram", "64GB"},
      {"--drives", "nan", "--ram", "64GB"},
      {"--drives", "1e99", "--ram", "64GB"},
      {"--drives", "7.1", "--ram", "64"},
      {"--drives", "7.1", "--ram", "9000000000GB"},
      {"--drives", "7.1", "--ram", "64GB", "--reference"},
      {"--drives", "7.1", "--ram", "64GB", "--hub", "5.4@8"},
      {"--drives", "7.1", "--ram", "64GB", "--what-if", "-drive:7.1"},
      {"--drives", "7.1", "--ram", "64GB", "--what-if", "faster"},
      {"--drives", "7.1", "--ram", "64GB", "--latency", "nan"},
      {"--drives", "7.1", "--ram", "64GB", "--latency", "-1"},
      {"--drives", "7.1", "--ram", "64GB", "--memory-bandwidth", "0GB"},
      {"--drives", "7.1", "--ram", "64GB", "--arithmetic", "0"},
      {"--drives", "7.1", "--ram", "64GB", "--layout", "raid"},
      {"--drives", "7.1", "--ram", "64GB", "--cache-policy", "best"},
      {"--drives", "7.1", "--ram", "64GB", "--dense", "int8"},
      {"--drives", "7.1", "--ram", "64GB", "--draft", "1"},
      {"--drives", "7.1", "--ram", "64GB", "--draft", "often"},
      {"--drives", "7.1", "--ram", "64GB", "--prompt-tokens", "0"},
      {"--drives", "7.1", "--ram", "64GB", "--prompt-tokens", "9000"},
      {"--drives", "7.1", "--ram", "64GB", "--context", "99999999999"},
      {"--drives", "7.1", "--ram", "64GB", "--plot", "plan.png"},
      {"--drives", "7.1", "--ram", "64GB", "--state-dir", "/nope"},
      {"--reference", "--state-dir", "/nope"},
      {"--calibrate", "--reference"},
      {"--calibrate", "--layout", "nonsense"},
      {"--calibrate", "--latency", "1"},
      {"--calibrate", "--what-if", "foo"},
      {"--calibrate", "--ram", "3"},
      {"--calibrate", "--trace", "/nope"},
      {"--calibrate", "--cache", "zz"},
      {"--calibrate", "--draft", "7"},
      {"--calibrate", "--dense", "q"},
      {"--calibrate", "--plot", "x.svg"},
      {"--calibrate", "--prompt-tokens", "3"},
  };
  for (const auto& arguments : wrong) {
    const auto plan = Plan(arguments);
    EXPECT_EQ(plan.exit_code, 2) << testing::PrintToString(arguments) << plan.err;
    EXPECT_FALSE(plan.err.empty());
    EXPECT_TRUE(plan.out.empty());
  }
}

TEST(Plan, TooLittleMemoryIsRefusedWithWhatWouldDo) {
  const auto plan = Plan({"--drives", "7.1", "--ram", "1GB"});
  EXPECT_EQ(plan.exit_code, 4);
  EXPECT_THAT(plan.err, HasSubstr("at least"));
}

TEST(Plan, AMachineWithoutMeasuredDrivesIsToldHowToMeasureThem) {
  const test::TempFolder state;
  const auto plan = Plan({"--this-machine", "--state-dir", state.path()});
  EXPECT_EQ(plan.exit_code, 5) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("deltafin drives"));
}

// As `deltafin drives` writes it, of the drive that holds the temporary files.
TEST(Plan, ThisMachineIsItsMeasuredDrives) {
  const test::TempFolder state;
  const auto drive = DriveOfFolder(state.path());
  if (!drive || drive->identity.empty()) GTEST_SKIP() << "the temporary files lie on no drive that can be named";
  DriveProfile profile;
  profile.identity = drive->identity;
  profile.bytes_per_second = 1.25e9;
  profile.device = drive->device;
  profile.measured_unix_seconds = 1760000000;
  profile.block_bytes = 1 << 20;
  profile.depth = 1;
  profile.grid = {{.block_bytes = 1 << 20,
                   .depth = 1,
                   .direct = true,
                   .bytes_per_second = 1e9,
                   .latency_p50_seconds = 0.001,
                   .latency_p99_seconds = 0.002}};
  const Status stored = StoreDriveProfile(state.path(), profile);
  ASSERT_TRUE(stored) << stored.error().message();
  const auto plan = PlanNano({"--this-machine", "--state-dir", state.path(), "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json report = Json::parse(plan.out);
  ASSERT_EQ(report["machine"]["drives"].size(), 1u);
  EXPECT_DOUBLE_EQ(report["machine"]["drives"][0]["bytes_per_second"].get<double>(), 1.25e9);
  EXPECT_GT(report["machine"]["memory_bytes_per_second"].get<double>(), 1e8);
  EXPECT_GT(report["tokens_per_second"].get<double>(), 0);
}

TEST(Plan, ReferenceHasThePublishedFiguresAndAllAssumptions) {
  const auto plan = PlanNano({"--reference", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json report = Json::parse(plan.out);
  EXPECT_EQ(report["published"]["tokens_per_second"], 0.92);
  EXPECT_EQ(report["published"]["tokens_per_second_drafts"], 1.0);
  EXPECT_EQ(report["published"]["seconds_first_token"], 375);
  const std::string all = report["assumptions"].dump();
  for (const char* words : {"macOS", "99 % of their rate", "60 % of a layer's experts", "12 bits", "300 GB/s"})
    EXPECT_THAT(all, HasSubstr(words));
}

// Not a terminal: 80 columns.
TEST(Plan, TextIsWrappedAndNamesHubs) {
  const auto plan = PlanNano({"--drives", "0.1,0.2,0.3", "--ram", "4GB", "--hub", "0.1+0.3@0.35"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  std::istringstream lines(plan.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  std::string joined;
  std::istringstream words(plan.out);
  for (std::string word; words >> word;) joined += word + ' ';
  EXPECT_THAT(joined, HasSubstr("0.1 + 0.3 behind a hub of 0.35 GB/s"));
}

TEST(Plan, WritesThePictureWhereItWasAsked) {
  const test::TempFolder folder;
  for (const char* name : {"/plan.svg", "/plan.html"}) {
    const std::string path = folder.path() + name;
    const auto plan = PlanNano({"--drives", "0.1,0.2", "--ram", "4GB", "--plot", path});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_THAT(text.str(), HasSubstr("tokens/s"));
    EXPECT_THAT(text.str(), HasSubstr("</svg>"));
  }
  const auto none = PlanNano({"--drives", "0.1", "--ram", "4GB", "--plot", folder.path() + "/none/plan.svg"});
  EXPECT_EQ(none.exit_code, 5);
  ASSERT_EQ(mkfifo((folder.path() + "/pipe.svg").c_str(), 0600), 0);
  const auto pipe = PlanNano({"--drives", "0.1", "--ram", "4GB", "--plot", folder.path() + "/pipe.svg"});
  EXPECT_EQ(pipe.exit_code, 2) << pipe.err;
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path() + "/pipe.svg"));
  EXPECT_THAT(none.err, HasSubstr("none/plan.svg"));
}

TEST(Plan, ATraceOfAnotherModelIsRefused) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/trace";
  std::ofstream(path) << "deltafin-expert-trace 1 layers 2 experts 4 per-token 2 record-bytes 10\n1 0 3\nstep 1\n";
  const auto plan = PlanNano({"--drives", "0.1", "--ram", "4GB", "--trace", path});
  EXPECT_EQ(plan.exit_code, 2) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("9 layers of 96"));
}

}  // namespace
}  // namespace deltafin
