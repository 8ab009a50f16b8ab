// `run --expert-trace` and `bench cache` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "cache/expert_trace.h"
#include "support/engine_runs.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;

test::ProcessResult Deltafin(std::vector<std::string> arguments, test::ProcessOptions options = {}) {
  options.arguments = std::move(arguments);
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

test::ProcessResult Record(const std::string& trace, const char* max_new, test::ProcessOptions options = {}) {
  return Deltafin({"run", "--model", test::NanoFolder(), "--prompt-ids", "398,427,272,1688,263", "--max-new", max_new,
                   "--temperature", "0.7", "--seed", "11", "--json", "--quiet", "--no-state", "--expert-trace", trace},
                  std::move(options));
}

Json LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return Json::parse(text.substr(text.rfind('\n', end) + 1, end));
}

TEST(BenchCache, ReplaysWhatARunRecorded) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/trace";
  const auto run = Record(path, "40");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json stats = LastLine(run.out);
  const auto bench = Deltafin({"bench", "cache", "--trace", path, "--slots", "768,8,100", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const Json report = Json::parse(bench.out);
  EXPECT_EQ(report["wanted"], stats["experts_distinct"]);
  EXPECT_EQ(report["record_bytes"], stats["record_bytes"]);
  EXPECT_EQ(report["steps"], stats["new_tokens"]);  // the prompt, then all new tokens but the last
  EXPECT_EQ(report["layers"], 8);
  const Json& results = report["results"];
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0]["slots"], 8);
  EXPECT_EQ(results[2]["slots"], 768);
  for (const Json& result : results) {
    for (const char* start : {"cold", "warm"}) {
      const Json& reads = result[start];
      EXPECT_LE(reads["fewest"].get<int64_t>(), reads["policy"].get<int64_t>());
      EXPECT_LE(reads["fewest"].get<int64_t>(), reads["layer_lru"].get<int64_t>());
      EXPECT_LE(reads["fewest"].get<int64_t>(), reads["static_set"].get<int64_t>());
    }
    EXPECT_NEAR(result["cold"]["ratio"].get<double>(),
                result["cold"]["policy"].get<double>() / result["cold"]["static_set"].get<double>(), 1e-9);
  }
  // All fit: each is read once, or was there before.
  EXPECT_EQ(results[2]["cold"]["policy"], results[2]["cold"]["fewest"]);
  EXPECT_EQ(results[2]["warm"]["policy"], 0);
  const auto text = Deltafin({"bench", "cache", "--trace", path, "--sizes", "1MiB"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("this very trace"));
}

TEST(BenchCache, RefusesWhatIsNoTrace) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/trace";
  std::ofstream(path) << "something else\n";
  const auto other = Deltafin({"bench", "cache", "--trace", path});
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("expert trace"));
  EXPECT_NE(Deltafin({"bench", "cache", "--trace", folder.path() + "/none"}).exit_code, 0);
  EXPECT_EQ(Deltafin({"bench", "cache"}).exit_code, 2);
  EXPECT_EQ(Deltafin({"bench", "cache", "--trace", path, "--slots", "0"}).exit_code, 2);
  // A run does not overwrite it either.
  const auto run = Record(path, "2");
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("--expert-trace"));
}

TEST(ExpertTraceOption, IsCompleteAfterCtrlC) {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/trace";
  test::ProcessOptions options;
  options.while_running = [](int pid) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kill(pid, SIGINT);
  };
  const auto run = Record(path, "4000", options);
  const Result<ExpertTrace> trace = ExpertTrace::Load(path);
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_FALSE(trace->was_cut());
  EXPECT_EQ(trace->steps().size(), LastLine(run.out)["new_tokens"].get<size_t>());
}

}  // namespace
}  // namespace deltafin
