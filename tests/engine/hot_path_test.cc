// A decoded token allocates nothing: every buffer is taken before the first one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "draft/ngram_drafter.h"
#include "engine/generation.h"
#include "support/count_allocations.h"
#include "support/engine_runs.h"
#include "support/made_drafters.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

struct Case {
  const char* name;
  EngineOptions options;
};

class HotPath : public testing::TestWithParam<Case> {};

TEST_P(HotPath, ADecodedTokenAllocatesNothing) {
  EngineOptions options = GetParam().options;
  options.model = test::NanoFolder();
  test::OpenedEngine engine(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(session);
  std::vector<float> logits(static_cast<size_t>(engine->spec().vocab_size));
  const Rows row(logits.data(), 1, engine->spec().vocab_size);
  const auto decode = [&](TokenId token) { return engine->Feed(*session, {&token, 1}, row, {}).has_value(); };
  // The first tokens warm up what grows to its final size once (queues of the read scheduler).
  for (TokenId token = 100; token < 120; ++token) ASSERT_TRUE(decode(token));

  // Pages of latents begin and end among them.
  static_assert(MlaCache::kPagePositions < 150);
  const int64_t before = test::Allocations();
  bool ok = true;
  for (TokenId token = 1000; token < 1150; ++token) ok = decode(token) && ok;
  const int64_t after = test::Allocations();
  EXPECT_TRUE(ok);
  EXPECT_EQ(after - before, 0) << "in 150 tokens";
}

INSTANTIATE_TEST_SUITE_P(Ways, HotPath,
                         testing::Values(Case{"EverythingInMemory", {}},
                                         Case{"SmallCache", {.expert_cache = 640u << 10}},
                                         Case{"DenseStreamed", {.dense_mode = DenseMode::kStream}},
                                         Case{"Pread", {.expert_cache = 640u << 10, .io = "pread"}},
                                         Case{"Avx2", {.isa = "avx2"}}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// The same through a whole request, sampling included.
TEST(HotPath, AGeneratedTokenAllocatesNothing) {
  test::OpenedEngine engine({.model = test::NanoFolder()});
  ASSERT_TRUE(engine.ok());
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(session);
  const std::vector<TokenId> prompt = {398, 427, 272, 1688, 263};
  std::vector<int64_t> allocations(64);
  size_t seen = 0;
  GenerationRequest request;
  request.prompt = prompt;
  request.max_new = 60;
  request.sampling = {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 3};
  request.on_token = [&](TokenId) {
    allocations[seen++] = test::Allocations();
    return true;
  };
  ASSERT_TRUE(Generate(*engine, *session, engine.monitor(), request));
  ASSERT_EQ(seen, 60u);
  EXPECT_EQ(allocations[59] - allocations[20], 0);
}

// The same with drafts, of which some are right, in steps of every width.
TEST(HotPath, ADraftedTokenAllocatesNothing) {
  test::OpenedEngine engine({.model = test::NanoFolder()});
  ASSERT_TRUE(engine.ok());
  const std::vector<TokenId> prompt = {398, 427, 272, 1688, 263};
  GenerationRequest request;
  request.prompt = prompt;
  request.max_new = 200;
  Result<Session> plain = engine->NewSession();
  const Result<GenerationResult> known = Generate(*engine, *plain, engine.monitor(), request);
  ASSERT_TRUE(known);
  std::vector<TokenId> text = prompt;
  text.insert(text.end(), known->tokens.begin(), known->tokens.end());

  size_t proposals = 0;
  const auto oracle = test::Oracle(text, 3);
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<test::MadeDrafter>(
      [&](std::span<const TokenId> history, std::span<TokenId> out) -> Result<int64_t> {
        return oracle(history, out.first(std::min(out.size(), ++proposals % 8)));
      }));
  drafters.push_back(std::move(*NgramDrafter::Create({engine->plan().context + 1, {}, 0})));
  Result<std::unique_ptr<Drafting>> drafting =
      Drafting::Create(*engine, std::move(drafters), {.rows = 8, .limits = {.most = 7, .always = true}});
  ASSERT_TRUE(drafting);
  std::vector<int64_t> allocations(256);
  size_t seen = 0;
  request.drafting = drafting->get();
  request.on_token = [&](TokenId) {
    allocations[seen++] = test::Allocations();
    return true;
  };
  Result<Session> session = engine->NewSession();
  ASSERT_TRUE(Generate(*engine, *session, engine.monitor(), request));
  ASSERT_EQ(seen, 200u);
  EXPECT_EQ(allocations[199] - allocations[60], 0);
}

// The same with a draft model that is asked for every step.
TEST(HotPath, AProposalOfADraftModelAllocatesNothing) {
  const std::string drafter = test::RepoPath("models/k3-nano-dspark");
  ASSERT_TRUE(std::filesystem::exists(drafter)) << drafter;
  test::OpenedEngine engine({.model = test::NanoFolder(), .draft = DraftMode::kDspark, .draft_model = drafter});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  Result<std::unique_ptr<Drafting>> drafting =
      Drafting::ForPlan(*engine, {.ngram = false, .limits = {.most = 7, .always = true}});
  ASSERT_TRUE(drafting);
  const std::vector<TokenId> prompt = {398, 427, 272, 1688, 263};
  std::vector<int64_t> allocations(256);
  size_t seen = 0;
  GenerationRequest request;
  request.prompt = prompt;
  request.max_new = 120;
  request.drafting = drafting->get();
  request.on_token = [&](TokenId) {
    allocations[seen++] = test::Allocations();
    return true;
  };
  Result<Session> session = engine->NewSession();
  const Result<GenerationResult> result = Generate(*engine, *session, engine.monitor(), request);
  ASSERT_TRUE(result);
  ASSERT_EQ(seen, 120u);
  EXPECT_GT(result->drafts->drafters[0].proposals, 10u);
  EXPECT_EQ(allocations[119] - allocations[60], 0);
}

// The counter can count.
TEST(HotPathCheck, AllocationsAreSeen) {
  const int64_t before = test::Allocations();
  const auto value = std::make_unique<int>(7);
  EXPECT_GT(test::Allocations(), before) << *value;
}

}  // namespace
}  // namespace deltafin
