// Reading ahead on the routing of a trained model: right more often than not, hardly ever in vain, the same bytes.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/generation.h"
#include "support/engine_runs.h"
#include "support/fake_io_engine.h"

namespace deltafin {
namespace {

struct Decoded {
  std::vector<TokenId> tokens;
  std::vector<float> last_logits;
  EngineCounters used;
  std::vector<LayerLookahead> layers;
};

// 120 tokens of the small model after a prompt it was trained for, with room for a part of the experts.
Decoded Decode(EngineOptions options, const test::OpenedEngine::IoFactory& io = {}) {
  options.model = test::NanoFolder();
  options.dense_mode = DenseMode::kResident;
  test::OpenedEngine engine(options, io);
  EXPECT_TRUE(engine.ok()) << engine.error().message();
  Result<Session> session = engine->NewSession();
  const std::vector<TokenId> prompt = {398, 427, 272, 1688, 263};
  Decoded run;
  GenerationRequest request;
  request.prompt = prompt;
  request.max_new = 120;
  request.sampling = {.temperature = 0.7, .seed = 11};
  const EngineCounters before = engine->counters();
  const Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  EXPECT_TRUE(result);
  run.used = engine->counters().Since(before);
  run.layers = engine->lookahead();
  run.tokens = result->tokens;
  run.last_logits.resize(static_cast<size_t>(engine->spec().vocab_size));
  const Rows row(run.last_logits.data(), 1, engine->spec().vocab_size);
  EXPECT_TRUE(engine->Feed(*session, {run.tokens.data(), 1}, row, {}));
  return run;
}

uint64_t ExpertBytes(const EngineCounters& c) {
  return c.expert_bytes_demand + c.expert_bytes_prefetch_useful + c.expert_bytes_prefetch_wasted;
}

class Prefetch : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(CacheBytes, Prefetch, testing::Values(1u << 20, 2u << 20, 4u << 20));

TEST_P(Prefetch, ChangesNoTokenAndNoLogit) {
  const Decoded with = Decode({.expert_cache = GetParam()});
  const Decoded without = Decode({.expert_cache = GetParam(), .prefetch = false});
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(std::memcmp(with.last_logits.data(), without.last_logits.data(), with.last_logits.size() * sizeof(float)),
            0);
}

TEST_P(Prefetch, BringsWhatIsWantedAndWastesAtMostATwentiethOfAllReads) {
  const Decoded with = Decode({.expert_cache = GetParam()});
  EXPECT_GT(with.used.expert_bytes_prefetch_useful, ExpertBytes(with.used) / 50);
  EXPECT_LE(with.used.expert_bytes_prefetch_wasted, ExpertBytes(with.used) / 20);
  EXPECT_GT(with.used.lookahead_predicted, with.used.lookahead_wanted / 4);
  EXPECT_EQ(with.used.cache_hits + with.used.cache_misses, with.used.experts_distinct);
}

TEST(PrefetchReport, TellsOfEveryLayerWithExperts) {
  const Decoded with = Decode({.expert_cache = 2u << 20});
  LayerLookahead sum;
  for (const LayerLookahead& layer : with.layers) {
    EXPECT_LE(layer.predicted, layer.wanted);
    EXPECT_LE(layer.wrong, layer.read_ahead);
    sum = {0, sum.wanted + layer.wanted, sum.predicted + layer.predicted, sum.read_ahead + layer.read_ahead, 0};
  }
  // Nine layers, the first one without experts; the router of the second is asked about the embedding.
  ASSERT_EQ(with.layers.size(), 8u);
  EXPECT_EQ(with.layers.front().layer, 1);
  EXPECT_GT(with.layers.front().wanted, 0u);
  EXPECT_GT(with.layers.back().wanted, 0u);
  EXPECT_EQ(sum.wanted, with.used.lookahead_wanted);
  EXPECT_EQ(sum.predicted, with.used.lookahead_predicted);
  EXPECT_GT(sum.read_ahead * with.used.record_bytes, with.used.expert_bytes_prefetch_useful / 2);
}

TEST(PrefetchOrder, CompletionsInAnyOrderChangeNothing) {
  const Decoded plain = Decode({});
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const Decoded random = Decode({.expert_cache = 2u << 20}, [seed]() -> Result<std::unique_ptr<IoEngine>> {
      return std::make_unique<test::FakeIoEngine>(test::FakeIoOptions{.seed = seed, .max_delay_us = 300});
    });
    EXPECT_GT(random.used.expert_bytes_prefetch_useful, 0u);
    EXPECT_EQ(random.tokens, plain.tokens);
    EXPECT_EQ(
        std::memcmp(random.last_logits.data(), plain.last_logits.data(), plain.last_logits.size() * sizeof(float)), 0);
  }
}

TEST(PrefetchOff, ReadsNothingAheadWhenItIsOff) {
  const Decoded off = Decode({.expert_cache = 1u << 20, .prefetch = false});
  EXPECT_EQ(off.used.expert_bytes_prefetch_useful + off.used.expert_bytes_prefetch_wasted, 0u);
  EXPECT_EQ(off.used.expert_bytes_demand, off.used.cache_misses * off.used.record_bytes);
}

TEST(PrefetchOff, ReadsNothingAheadWithTheSmallestCache) {
  test::OpenedEngine probe({.model = test::NanoFolder()});
  const uint64_t slot = probe->plan().rows[3].bytes / static_cast<uint64_t>(probe->plan().expert_slots);
  const Decoded smallest = Decode({.expert_cache = slot * static_cast<uint64_t>(probe->spec().num_experts_per_token)});
  EXPECT_EQ(smallest.used.expert_bytes_prefetch_useful + smallest.used.expert_bytes_prefetch_wasted, 0u);
}

}  // namespace
}  // namespace deltafin
