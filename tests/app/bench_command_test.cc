// `deltafin bench kernels` from outside: shape of the report, and what is refused. Speeds are not judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "support/process.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

test::ProcessResult Kernels(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.arguments.insert(options.arguments.begin(), {"bench", "kernels"});
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

TEST(BenchKernels, ReportsEveryKernelAgainstALimitOfTheSameRun) {
  const auto r = Kernels({"--json", "--seconds", "0.1", "--rounds", "1", "--threads", "1"});
  if (r.exit_code == 4) GTEST_SKIP() << "needs 1.2 GB of memory: " << r.err;
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json report = Json::parse(r.out);
  std::set<std::string> kernels;
  std::map<std::string, double> one;  // speed at one row, which comes first
  for (const Json& result : report["results"]) {
    kernels.insert(result["kernel"].get<std::string>());
    EXPECT_EQ(result["threads"], 1);
    EXPECT_GE(result["rows"].get<int>(), 1);
    EXPECT_EQ(result["unit"], result["rows"].get<int>() <= 4 ? "GB/s" : "GFLOP/s");
    EXPECT_GT(result["value"].get<double>(), 0);
    EXPECT_GT(result["ceiling"].get<double>(), 0);
    EXPECT_GT(result["ratio"].get<double>(), 0);
    // Of one round, medians are the round's own figures.
    const double value = result["value"].get<double>();
    EXPECT_NEAR(result["ratio"].get<double>(), value / result["ceiling"].get<double>(), 1e-6);
    if (result["rows"] == 1) one[result["kernel"].get<std::string>()] = value;
    if (result["unit"] == "GB/s") {
      EXPECT_NEAR(result["rows_over_one"].get<double>(),
                  result["rows"].get<double>() * value / one[result["kernel"].get<std::string>()], 1e-6);
    }
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"bf16_o_proj", "bf16_q_proj", "mxfp4_expert"}));
}

TEST(BenchKernels, RefusesWhatItDoesNotKnow) {
  const auto isa = Kernels({"--isa", "sse9", "--seconds", "0.1"});
  EXPECT_EQ(isa.exit_code, 2) << isa.err;
  EXPECT_THAT(isa.err, HasSubstr("sse9"));
  EXPECT_EQ(Kernels({"--rounds", "0"}).exit_code, 2);
  EXPECT_EQ(Kernels({"more"}).exit_code, 2);
}

}  // namespace
}  // namespace deltafin
