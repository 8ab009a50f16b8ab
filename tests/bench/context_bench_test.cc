// What decoding costs behind conversations of several lengths: which are refused, and that each length is measured.
#include "bench/context_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/engine_runs.h"

namespace deltafin {
namespace {

TEST(ContextBench, LengthsThatDoNotAscendAreRefused) {
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{{}, {0, 5}, {-1}, {8, 8}, {9, 3}}) {
    const Status status = CheckContextBench({.lengths = lengths});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message(), testing::HasSubstr("larger than the one before"));
  }
  EXPECT_TRUE(CheckContextBench({.lengths = {1}}));
  EXPECT_FALSE(CheckContextBench({.lengths = {1, 2}, .new_tokens = 0}));
  EXPECT_FALSE(CheckContextBench({.lengths = {1, 2}, .rounds = 0}));
}

TEST(ContextBench, EveryLengthIsDecodedBehindAndSharesItsBeginning) {
  test::OpenedEngine engine({.model = test::NanoFolder(), .context = 256, .sequences = 3});
  const auto limits = MachineLimits::Create("auto", {.threads = 1, .cpus = {}}, false);
  ASSERT_TRUE(limits);
  const BackendTimes times;
  std::vector<std::string> said;
  ContextBenchOptions options{.lengths = {7, 40}, .new_tokens = 5, .rounds = 2};
  options.progress = [&](const std::string& what) { said.push_back(what); };
  const auto report = BenchContext(*engine, engine.monitor(), **limits, times, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_THAT(said, testing::ElementsAre("reading 7 tokens", "reading 40 tokens", "warming up", "round 1 of 2",
                                         "round 2 of 2"));
  ASSERT_EQ(report->rows.size(), 2u);
  for (const ContextBenchRow& row : report->rows) {
    EXPECT_GT(row.seconds_per_token, 0);
    EXPECT_LE(row.least, row.seconds_per_token);
    EXPECT_GE(row.most, row.seconds_per_token);
    EXPECT_EQ(row.latent_bytes,
              static_cast<double>(SequenceState::MlaBytes(engine->spec(), row.length + options.new_tokens / 2)));
  }
  EXPECT_EQ(report->rows[0].over_first, 1);
}

}  // namespace
}  // namespace deltafin
