// What reading a prompt costs: each expert that a layer's rows chose is read once for a chunk, nothing else is, and a
// layer is passed once for a chunk.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/bytes.h"
#include "support/engine_runs.h"

namespace deltafin {
namespace {

// The distinct experts of each layer and step.
class RouteCounter final : public ActivationTap {
 public:
  void OnRows(const std::string&, const ConstRows&) override {}
  void OnIds(const std::string&, std::span<const int32_t> ids, int64_t) override {
    distinct_ += std::set<int32_t>(ids.begin(), ids.end()).size();
  }
  uint64_t distinct() const { return distinct_; }

 private:
  uint64_t distinct_ = 0;
};

std::vector<TokenId> Tokens(int64_t count) {
  std::mt19937 random(3);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % 7900);
  return tokens;
}

struct Prompt {
  int64_t tokens = 0;
  int64_t chunk = 0;  // 0: the plan's
};

class PromptReading : public testing::TestWithParam<Prompt> {};

TEST_P(PromptReading, EachExpertIsReadOnceForAChunk) {
  const Prompt prompt = GetParam();
  EngineOptions options;
  options.model = test::NanoFolder();
  options.chunk = prompt.chunk;
  test::OpenedEngine engine(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const int64_t chunk = engine->plan().chunk;
  ASSERT_GE(chunk, prompt.chunk == 0 ? prompt.tokens : prompt.chunk) << "memory allows it";
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(session);
  RouteCounter routes;
  ASSERT_TRUE(engine->Feed(*session, Tokens(prompt.tokens), Rows(), {}, &routes));
  const EngineCounters used = engine->counters();
  const auto chunks = static_cast<uint64_t>(CeilDiv(prompt.tokens, chunk));
  EXPECT_EQ(used.layer_passes, engine->spec().layers.size() * chunks);
  EXPECT_EQ(used.experts_distinct, routes.distinct());
  EXPECT_GT(routes.distinct(), 0u);
  const uint64_t needed = routes.distinct() * used.record_bytes;
  EXPECT_EQ(used.expert_bytes_prefetch_useful + used.expert_bytes_prefetch_wasted, 0u) << "counted apart";
  // Later chunks find in memory what earlier ones have read.
  if (chunks == 1) {
    EXPECT_EQ(used.expert_bytes_demand, needed);
  } else {
    EXPECT_LT(used.expert_bytes_demand, needed);
  }
}

TEST_P(PromptReading, ASmallCacheReadsNoMore) {
  const Prompt prompt = GetParam();
  EngineOptions options;
  options.model = test::NanoFolder();
  options.chunk = prompt.chunk;
  test::OpenedEngine probe(options);
  ASSERT_TRUE(probe.ok()) << probe.error().message();
  const uint64_t slot = probe->plan().rows[3].bytes / static_cast<uint64_t>(probe->plan().expert_slots);
  options.expert_cache = slot * static_cast<uint64_t>(probe->spec().num_experts_per_token + 3);
  test::OpenedEngine engine(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(session);
  RouteCounter routes;
  ASSERT_TRUE(engine->Feed(*session, Tokens(prompt.tokens), Rows(), {}, &routes));
  EXPECT_LE(engine->counters().expert_bytes_demand, routes.distinct() * engine->counters().record_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, PromptReading,
                         testing::Values(Prompt{6}, Prompt{64}, Prompt{512}, Prompt{4000}, Prompt{64, 10},
                                         Prompt{700, 600}, Prompt{4000, 512}),
                         [](const auto& info) {
                           return std::to_string(info.param.tokens) + "InChunksOf" +
                                  (info.param.chunk == 0 ? "ThePlan" : std::to_string(info.param.chunk));
                         });

}  // namespace
}  // namespace deltafin
