// `deltafin bench` from outside: shape of the report, and what is refused. Speeds are not judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "support/process.h"
#include "support/test_data.h"

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
  if (r.exit_code == 4) GTEST_SKIP() << "needs 1.6 GB of memory: " << r.err;
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
  EXPECT_EQ(kernels,
            (std::set<std::string>{"bf12_o_proj", "bf12_q_proj", "bf16_o_proj", "bf16_q_proj", "mxfp4_expert"}));
}

TEST(BenchKernels, RefusesWhatItDoesNotKnow) {
  const auto isa = Kernels({"--isa", "sse9", "--seconds", "0.1"});
  EXPECT_EQ(isa.exit_code, 2) << isa.err;
  EXPECT_THAT(isa.err, HasSubstr("sse9"));
  EXPECT_EQ(Kernels({"--rounds", "0"}).exit_code, 2);
  EXPECT_EQ(Kernels({"more"}).exit_code, 2);
}

TEST(BenchDraft, ReportsEveryKindOfTextPlainlyAndWithEveryNumberOfDrafts) {
  test::ProcessOptions options;
  options.arguments = {"bench",  "draft",      "--model", test::RepoPath("models/k3-nano"),
                       "--json", "--new",      "12",      "--drafts",
                       "1,3",    "--no-state", "--quiet", "--expert-cache",
                       "1MiB",   "--prefetch", "off"};
  const auto r = test::RunProcess(DELTAFIN_PROGRAM, options);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json report = Json::parse(r.out);
  double plain_bytes = 0;
  int undrafted = 0;
  std::map<std::string, std::set<std::string>> seen;
  for (const Json& result : report["results"]) {
    const std::string drafter = result["drafter"], drafts = result["drafts"];
    seen[result["text"]].insert(drafter + " " + drafts);
    EXPECT_GE(result["tokens_per_step"].get<double>(), 1);
    EXPECT_LE(result["tokens_per_step"].get<double>(), 8);
    EXPECT_GE(result["acceptance"].get<double>(), 0);
    EXPECT_LE(result["acceptance"].get<double>(), 1);
    EXPECT_GT(result["seconds_per_token"].get<double>(), 0);
    EXPECT_GE(result["payload_bytes_per_token"].get<double>(), 0);
    EXPECT_NEAR(result["speed_up"].get<double>(),
                result["tokens_per_step"].get<double>() / result["break_even"].get<double>(), 1e-9);
    // A step reads each expert that its rows want once, unless the cache holds it.
    const Json& experts = result["experts"];
    EXPECT_EQ(experts["bytes_demand"].get<uint64_t>(),
              (experts["wanted"].get<uint64_t>() - experts["held"].get<uint64_t>()) *
                  experts["record_bytes"].get<uint64_t>());
    EXPECT_EQ(experts["bytes_prefetch_useful"].get<uint64_t>() + experts["bytes_prefetch_wasted"].get<uint64_t>(), 0u);
    if (drafter == "off") plain_bytes = result["payload_bytes_per_token"].get<double>();
    uint64_t plain_steps = 0;
    for (const Json& steps : result["break_evens"]) {
      const double rows = steps["rows"].get<double>();
      EXPECT_NEAR(steps["break_even_at_k3_costs"].get<double>(), std::pow(rows, 0.69), 1e-9);
      if (rows == 1) plain_steps = steps["steps"].get<uint64_t>();
    }
    // Every case begins with the same cache: where nothing was drafted, nothing else was read than without drafts.
    if (plain_steps == result["tokens"].get<uint64_t>()) {
      EXPECT_EQ(result["payload_bytes_per_token"].get<double>(), plain_bytes) << drafter << " " << drafts;
      ++undrafted;
    }
    if (drafter == "off") {
      EXPECT_EQ(result["tokens_per_step"].get<double>(), 1);
      EXPECT_EQ(result["speed_up"].get<double>(), 1);
      EXPECT_EQ(result["speed_up_at_usual_costs"].get<double>(), 1);
    }
  }
  EXPECT_GT(undrafted, 4) << "besides the four without drafts";
  const std::set<std::string> all = {"off 0", "ngram 1", "ngram 3", "ngram auto", "auto auto"};
  EXPECT_EQ(seen, (std::map<std::string, std::set<std::string>>{
                      {"grounded", all}, {"code", all}, {"chat", all}, {"random", all}}));
}

TEST(BenchDraft, RefusesWhatIsNoNumberOfDrafts) {
  test::ProcessOptions options;
  options.arguments = {"bench", "draft", "--model", test::RepoPath("models/k3-nano"), "--drafts", "8", "--no-state"};
  EXPECT_EQ(test::RunProcess(DELTAFIN_PROGRAM, options).exit_code, 2);
  options.arguments = {"bench", "draft", "--model", test::RepoPath("models/k3-nano"), "--draft", "off", "--no-state"};
  EXPECT_EQ(test::RunProcess(DELTAFIN_PROGRAM, options).exit_code, 2);
}

test::ProcessResult Decode(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  options.arguments = {"bench", "decode", "--model", test::RepoPath("models/k3-nano"), "--no-state"};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

TEST(BenchDecode, HoldsAModelAgainstTheLimitsOfTheSameRun) {
  const auto r = Decode({"--json", "--rounds", "1", "--prompt-tokens", "7", "--new", "5", "--threads", "1"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json report = Json::parse(r.out);
  EXPECT_EQ(report["prompt_tokens"], 7);
  EXPECT_EQ(report["new_tokens"], 5);
  EXPECT_EQ(report["rounds"], 1);
  const auto figure = [&](const char* name) { return report[name].get<double>(); };
  for (const char* positive :
       {"seconds_per_token", "memory_read_ceiling", "multiply_add_peak", "seconds_prompt", "seconds_outside_per_layer"})
    EXPECT_GT(figure(positive), 0) << positive;
  // Of one round, medians are the round's own figures.
  EXPECT_NEAR(figure("bytes_per_second") / (figure("bytes_touched_per_token") / figure("seconds_per_token")), 1, 1e-6);
  EXPECT_NEAR(figure("decode_ratio") / (figure("bytes_per_second") / figure("memory_read_ceiling")), 1, 1e-6);
  EXPECT_NEAR(figure("prompt_ratio") / (figure("prompt_flops_per_second") / figure("multiply_add_peak")), 1, 1e-6);
  EXPECT_LT(figure("seconds_wait_per_token"), figure("seconds_per_token"));
}

// The second round's prompt is another one, so that a cache does not hold all of it: with the fewest slots experts are
// read for every token.
TEST(BenchDecode, CountsWhatTheDrivesDelivered) {
  const auto r = Decode({"--json", "--rounds", "1", "--new", "8", "--expert-cache", "300KB", "--prefetch", "off"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json report = Json::parse(r.out);
  EXPECT_GT(report["device_bytes_per_token"].get<double>(), 0);
  EXPECT_GT(report["device_bytes_prompt"].get<double>(), 0);
  EXPECT_GE(report["seconds_wait_per_token"].get<double>(), 0);
}

TEST(BenchDecode, RefusesWhatTheContextCannotHold) {
  const auto r = Decode({"--prompt-tokens", "100", "--new", "29", "--context", "128"});
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_THAT(r.err, HasSubstr("--context"));
  EXPECT_EQ(Decode({"--prompt-tokens", "100", "--new", "28", "--context", "128", "--rounds", "1"}).exit_code, 0);
  EXPECT_EQ(Decode({"--new", "0"}).exit_code, 2);
  EXPECT_EQ(Decode({"--pin", "hard"}).exit_code, 2);
}

}  // namespace
}  // namespace deltafin
