// `plan` from outside: what scripts rely on, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json.h"
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
      {"--calibrate", "--reference"},
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
  EXPECT_EQ(plan.exit_code, 4) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("deltafin drives"));
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
